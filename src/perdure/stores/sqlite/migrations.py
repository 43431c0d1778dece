"""The schema, as the migrations that made it. Append only: a migration that was released is never edited.

Codes for status, event and message kind are stored: see `perdure.stores.sqlite.rows`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Migration(Struct, frozen=True):
    """One step of the schema; `number` is the file's `user_version` once it is done."""

    number: int
    name: str
    statements: tuple[str, ...]


_INITIAL: Final = (
    # AUTOINCREMENT: an incarnation is never used again, also after its run was deleted. Every turn rewrites its run's row,
    # so that the row is kept narrow: a large input lies in `inputs`. `urgency` is the priority with absent as 0.
    # `successor` is the incarnation behind `continued_to`, an id that a stranger may have by now.
    """
    CREATE TABLE runs (
        incarnation INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        status INTEGER NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL,
        n INTEGER NOT NULL,
        inbox INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        wake_at INTEGER,
        listening INTEGER NOT NULL,
        recoveries INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        started_at INTEGER,
        ended_at INTEGER,
        created_at INTEGER NOT NULL,
        deadline INTEGER,
        timeout INTEGER,
        workflow TEXT NOT NULL,
        version TEXT NOT NULL,
        namespace TEXT NOT NULL,
        priority INTEGER,
        urgency INTEGER NOT NULL,
        format INTEGER NOT NULL,
        seed INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        tags TEXT,
        origin TEXT,
        parent_id TEXT,
        parent INTEGER,
        parent_seq INTEGER,
        awaited_as TEXT,
        continued_to TEXT,
        successor INTEGER,
        fingerprint TEXT,
        attributes BLOB,
        input BLOB,
        output BLOB,
        error BLOB
    )
    """,
    # Who is due next: one range a namespace and urgency. The last columns let a process pass over what it cannot serve
    # without looking at the rows.
    """
    CREATE INDEX runs_due ON runs (namespace, urgency, wake_at, incarnation, workflow, version, format)
    WHERE wake_at IS NOT NULL
    """,
    "CREATE INDEX runs_by_status ON runs (status)",
    "CREATE INDEX runs_by_namespace ON runs (namespace)",
    "CREATE INDEX runs_by_workflow ON runs (workflow)",
    "CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL",
    # What the audit looks for: empty as long as we make no mistake.
    """
    CREATE INDEX runs_astray ON runs (incarnation)
    WHERE wake_at IS NULL AND (status IN (0, 1) OR (status = 2 AND (listening = 0 OR inbox > seen)))
    """,
    "CREATE TABLE inputs (incarnation INTEGER PRIMARY KEY, input BLOB NOT NULL)",
    "CREATE TABLE tags (tag TEXT NOT NULL, incarnation INTEGER NOT NULL, PRIMARY KEY (tag, incarnation)) WITHOUT ROWID",
    """
    CREATE TABLE history (
        incarnation INTEGER NOT NULL,
        n INTEGER NOT NULL,
        event INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        op TEXT,
        name TEXT NOT NULL,
        payload BLOB,
        at INTEGER NOT NULL,
        due INTEGER,
        began INTEGER,
        commit_n INTEGER NOT NULL,
        PRIMARY KEY (incarnation, n)
    ) WITHOUT ROWID
    """,
    # With row ids, by which many can be deleted at once without walking through others.
    """
    CREATE TABLE messages (
        incarnation INTEGER NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        token TEXT,
        payload BLOB,
        failed INTEGER NOT NULL,
        at INTEGER NOT NULL,
        arrival INTEGER,
        PRIMARY KEY (incarnation, number)
    )
    """,
    # The last arrival number that was given.
    "CREATE TABLE arrivals (one INTEGER PRIMARY KEY CHECK (one = 1), last INTEGER NOT NULL)",
    "INSERT INTO arrivals VALUES (1, 0)",
    # The dedup ids of messages to runs, for as long as the run exists.
    """
    CREATE TABLE deliveries (
        incarnation INTEGER NOT NULL,
        dedup TEXT NOT NULL,
        PRIMARY KEY (incarnation, dedup)
    ) WITHOUT ROWID
    """,
    # And of messages to tokens.
    """
    CREATE TABLE token_deliveries (
        namespace TEXT NOT NULL,
        token TEXT NOT NULL,
        dedup TEXT NOT NULL,
        PRIMARY KEY (namespace, token, dedup)
    ) WITHOUT ROWID
    """,
    # Who waits for a token, oldest first. `served`: the inbox number of the message that the wait was given.
    """
    CREATE TABLE waits (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        token TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        served INTEGER
    )
    """,
    "CREATE INDEX waits_by_token ON waits (namespace, token, place) WHERE served IS NULL",
    "CREATE INDEX waits_by_run ON waits (incarnation, seq)",
    # Messages kept at their token until somebody waits, in order of arrival, which they keep when they are given back.
    """
    CREATE TABLE kept (
        namespace TEXT NOT NULL,
        token TEXT NOT NULL,
        arrival INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        payload BLOB,
        failed INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (namespace, token, arrival)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE run_values (
        incarnation INTEGER NOT NULL,
        key TEXT NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (incarnation, key)
    ) WITHOUT ROWID
    """,
)

_ATTRIBUTES: Final = (
    # What runs can be found by, and the runs, in the order in which they are listed.
    """
    CREATE TABLE attributes (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        PRIMARY KEY (name, value, incarnation)
    ) WITHOUT ROWID
    """,
    # `searchable` is the rule that new runs go by (see `schema`), as JSON: a list of names and values.
    """
    INSERT INTO attributes
    SELECT json_extract(found.value, '$[0]'), json_extract(found.value, '$[1]'), runs.incarnation
    FROM runs CROSS JOIN json_each(searchable(runs.attributes)) AS found
    WHERE runs.attributes IS NOT NULL
    """,
)

_FLEET: Final = (
    # `process` is its description as JSON: newer ones may say more, or less.
    """
    CREATE TABLE processes (
        owner TEXT PRIMARY KEY,
        process BLOB NOT NULL,
        seen_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)

_CARRIERS: Final = (
    # Texts that go with a run: see perdure.model.carrier.
    "ALTER TABLE runs ADD COLUMN carrier BLOB",
)

_EVENTS: Final = (
    # A wait for an event stands among those for tokens, under a name that no token has. `facets`: what it asks of the payload,
    # JSON; `probe` the first of them, or empty; `back` what is given back of an event that it was served and did not read.
    "ALTER TABLE waits ADD COLUMN probe TEXT",
    "ALTER TABLE waits ADD COLUMN facets TEXT",
    "ALTER TABLE waits ADD COLUMN back TEXT",
    "CREATE INDEX waits_by_event ON waits (namespace, token, probe, place) WHERE served IS NULL AND probe IS NOT NULL",
    # Events that reached nobody, and by which facets they are found.
    """
    CREATE TABLE kept_events (
        namespace TEXT NOT NULL,
        event TEXT NOT NULL,
        arrival INTEGER NOT NULL,
        payload BLOB NOT NULL,
        facets TEXT NOT NULL,
        at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (namespace, event, arrival)
    )
    """,
    "CREATE INDEX kept_events_over ON kept_events (expires_at)",
    """
    CREATE TABLE kept_facets (
        namespace TEXT NOT NULL,
        event TEXT NOT NULL,
        facet TEXT NOT NULL,
        arrival INTEGER NOT NULL,
        PRIMARY KEY (namespace, event, facet, arrival)
    ) WITHOUT ROWID
    """,
    # The ids of events.
    """
    CREATE TABLE published (
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        event TEXT NOT NULL,
        reached INTEGER NOT NULL,
        forget_at INTEGER,
        PRIMARY KEY (namespace, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX published_over ON published (forget_at) WHERE forget_at IS NOT NULL",
    # What starts runs, as JSON; an empty namespace is all of them.
    """
    CREATE TABLE subscriptions (
        namespace TEXT NOT NULL,
        workflow TEXT NOT NULL,
        version TEXT NOT NULL,
        subscription BLOB NOT NULL,
        PRIMARY KEY (namespace, workflow, version)
    ) WITHOUT ROWID
    """,
)

_SEARCH: Final = (
    # `value` is from now on the key that `perdure.model.attributes` makes of a value, whose order is that of the values.
    "CREATE INDEX attributes_by_run ON attributes (incarnation, name)",
    "DELETE FROM attributes",
    _ATTRIBUTES[1],
    "CREATE INDEX runs_by_origin ON runs (origin) WHERE origin IS NOT NULL",
)

_PAUSES: Final = (
    "ALTER TABLE runs ADD COLUMN paused_at INTEGER",
    "DROP INDEX runs_due",
    # As it was, but for those that nobody takes. (The last column is there so that rows need not be looked at for it.)
    """
    CREATE INDEX runs_due ON runs (namespace, urgency, wake_at, incarnation, workflow, version, format, paused_at)
    WHERE wake_at IS NOT NULL AND paused_at IS NULL
    """,
)

_GATES: Final = (
    # The gate that a run passes as a whole, as JSON, and how many tickets it has: only who has some must give them back.
    "ALTER TABLE runs ADD COLUMN gate TEXT",
    "ALTER TABLE runs ADD COLUMN tickets INTEGER NOT NULL DEFAULT 0",
    """
    CREATE TABLE gates (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        key TEXT NOT NULL,
        slots INTEGER,
        rate INTEGER,
        window INTEGER NOT NULL,
        lifo INTEGER NOT NULL,
        fair INTEGER NOT NULL,
        depth INTEGER,
        lasting INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        held INTEGER NOT NULL,
        waiting INTEGER NOT NULL,
        opened INTEGER NOT NULL,
        used INTEGER NOT NULL,
        services INTEGER NOT NULL,
        wake_at INTEGER,
        UNIQUE (namespace, name, key)
    )
    """,
    "CREATE INDEX gates_by_name ON gates (name)",
    "CREATE INDEX gates_due ON gates (wake_at) WHERE wake_at IS NOT NULL",
    # Who holds a gate and who waits for it. Of those that wait: their lane, and their place in it.
    """
    CREATE TABLE tickets (
        arrival INTEGER PRIMARY KEY AUTOINCREMENT,
        gate INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        held INTEGER NOT NULL,
        urgency INTEGER NOT NULL,
        fairness TEXT NOT NULL,
        lane TEXT NOT NULL,
        rank INTEGER NOT NULL,
        since INTEGER NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX tickets_by_run ON tickets (incarnation, seq)",
    "CREATE INDEX tickets_in_line ON tickets (gate, urgency, lane, rank) WHERE held = 0",
    "CREATE INDEX tickets_held ON tickets (gate, since) WHERE held = 1",
    # The lanes in which somebody waits: the rank of the first, and when the fairness key was served last.
    """
    CREATE TABLE lanes (
        gate INTEGER NOT NULL,
        urgency INTEGER NOT NULL,
        lane TEXT NOT NULL,
        head INTEGER NOT NULL,
        served INTEGER NOT NULL,
        PRIMARY KEY (gate, urgency, lane)
    )
    """,
    "CREATE INDEX lanes_next ON lanes (gate, urgency DESC, served, head)",
    "CREATE INDEX lanes_by_key ON lanes (gate, lane)",
    # The newest service of each fairness key, in the order of a gate's services.
    """
    CREATE TABLE services (
        gate INTEGER NOT NULL,
        lane TEXT NOT NULL,
        service INTEGER NOT NULL,
        PRIMARY KEY (gate, lane)
    )
    """,
    "CREATE INDEX services_by_age ON services (gate, service)",
)

_STREAMS: Final = (
    # AUTOINCREMENT: a place is never given again, also after its chunk was deleted.
    """
    CREATE TABLE chunks (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        incarnation INTEGER NOT NULL,
        stream TEXT NOT NULL,
        payload BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL
    )
    """,
    "CREATE INDEX chunks_by_stream ON chunks (incarnation, stream, place)",
    "CREATE UNIQUE INDEX chunks_once ON chunks (incarnation, epoch, seq, attempt, stream, number)",
)

_TRANSACTIONS: Final = (
    # The outputs of steps that were made in users' transactions, for attempts that come after the commit and before the
    # turn that takes it into history.
    """
    CREATE TABLE transactions (
        incarnation INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        name TEXT NOT NULL,
        output BLOB,
        PRIMARY KEY (incarnation, seq)
    ) WITHOUT ROWID
    """,
)

MIGRATIONS: Final = (
    Migration(1, "initial", _INITIAL),
    Migration(2, "fleet", _FLEET),
    Migration(3, "attributes", _ATTRIBUTES),
    Migration(4, "carriers", _CARRIERS),
    Migration(5, "events", _EVENTS),
    Migration(6, "search", _SEARCH),
    Migration(7, "pauses", _PAUSES),
    Migration(8, "gates", _GATES),
    Migration(9, "streams", _STREAMS),
    Migration(10, "transactions", _TRANSACTIONS),
)
