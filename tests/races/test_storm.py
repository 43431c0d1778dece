"""Four processes at the same few runs, families, chains and tokens: nobody deadlocks, nobody loses, and all adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

from tests.servers.databases import Schema
from tests.servers.sql import Admin

PROCESSES, BATCHES = 4, 200

#: What must not be there, and why it is looked for.
BROKEN = {
    "history is a row for each n": """
        SELECT id FROM {0}.runs LEFT JOIN {0}.history AS h USING (incarnation) GROUP BY incarnation, runs.n
        HAVING count(h.n) <> runs.n OR coalesce(max(h.n), -1) <> runs.n - 1""",
    "messages have come to the inbox": """
        SELECT id FROM {0}.runs JOIN {0}.messages USING (incarnation) WHERE number > inbox""",
    "ended runs wait for nothing": """
        SELECT id FROM {0}.runs JOIN {0}.waits USING (incarnation) WHERE status >= 4""",
    "a wait and a message for it do not miss each other": """
        SELECT w.token FROM {0}.waits AS w JOIN {0}.kept USING (namespace, token) WHERE w.served IS NULL""",
    "running runs have an owner and a lease": """
        SELECT id FROM {0}.runs WHERE (status = 1) <> (owner IS NOT NULL) OR (status = 1 AND wake_at IS NULL)""",
    "ended runs are never due": "SELECT id FROM {0}.runs WHERE status >= 4 AND (wake_at IS NOT NULL OR listening)",
    "what was cancelled took along what was below": """
        SELECT r.id FROM {0}.runs AS r JOIN {0}.runs AS p ON p.incarnation = r.parent
        WHERE p.status = 6 AND r.status < 4 AND r.id NOT LIKE '%~%'
        AND NOT EXISTS (SELECT FROM {0}.history AS h WHERE h.incarnation = r.incarnation AND h.event = 9)""",
    "deleted runs leave nothing": """
        SELECT incarnation FROM (
            SELECT incarnation FROM {0}.tags UNION SELECT incarnation FROM {0}.attributes
            UNION SELECT incarnation FROM {0}.history UNION SELECT incarnation FROM {0}.messages
            UNION SELECT incarnation FROM {0}.deliveries UNION SELECT incarnation FROM {0}.waits
            UNION SELECT incarnation FROM {0}.run_values
        ) AS hanging WHERE incarnation NOT IN (SELECT incarnation FROM {0}.runs)""",
    # (The script itself parks runs so that nothing can wake them.)
    "a message wakes who listens": "SELECT found_id FROM {0}.audit_1(NULL, false) WHERE found_listening",
}


def play(schema: Schema) -> Counter[str]:
    """What all processes say together."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.races.storm", schema.store, str(seed), str(BATCHES)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in range(PROCESSES)
    ]  # fmt: skip
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        counts: Counter[str] = Counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            out, error = worker.communicate(timeout=50)
            assert (worker.returncode, error) == (0, "")
            counts.update(json.loads(out))
        return counts
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_f83_four_processes_at_the_same_runs_never_deadlock(postgres_database: Callable[..., str]) -> None:
    schema = Schema(postgres_database("storm"), "perdure")
    counts = play(schema)
    with Admin(schema.url) as admin:
        broken = {why: admin.rows(sql.format('"perdure"')) for why, sql in BROKEN.items()}
        deadlocks = admin.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert {why: rows for why, rows in broken.items() if rows} == {}
    assert deadlocks == 0
    assert counts["TurnCommit Applied"] > 200, counts
    # (Two that start the same new id meet; all other locks are taken in order.)
    assert counts["begun anew"] < counts["deeds"] / 50, counts
