"""The audit: looking for what no verb can have written."""

from __future__ import annotations

from typing import Final

from perdure.model.run import RunKey
from perdure.ports.store import Finding
from perdure.stores.sqlite.claims import make_due
from perdure.stores.sqlite.rows import PENDING, RUNNING, STATUSES
from perdure.stores.sqlite.transaction import Transaction

#: By the index `runs_astray`, whose condition this repeats word for word: it looks at nothing that is well.
_ASTRAY: Final = """
    SELECT incarnation, id, status, listening,
        EXISTS (SELECT 1 FROM messages AS m WHERE m.incarnation = runs.incarnation AND m.number > runs.seen)
    FROM runs INDEXED BY runs_astray
    WHERE wake_at IS NULL AND (status IN (0, 1) OR (status = 2 AND (listening = 0 OR inbox > seen)))
    ORDER BY incarnation
"""


def audit(tx: Transaction, *, heal: bool) -> list[Finding]:
    """The runs that nothing would ever wake; with `heal`, they are made due."""
    found: list[Finding] = []
    for incarnation, run_id, code, listening, unseen in tx.execute(_ASTRAY).fetchall():
        what = _what(code, listening == 1, unseen == 1)
        if what is not None:
            found.append(Finding(RunKey(run_id, incarnation), what))
    if heal:
        make_due(tx, [finding.run.incarnation for finding in found])
    return found


def _what(code: int, listening: bool, unseen: bool) -> str | None:
    if code in (PENDING, RUNNING):
        return f"{STATUSES[code]} without a wake time: nobody would ever look at it"
    if not listening:
        return "suspended without a wake time and not listening: nothing could ever wake it"
    if unseen:
        return "suspended, listening, with an unseen message and no wake time: it was not woken"
    return None  # A message was given back to its token: the number it had in the inbox stays used.
