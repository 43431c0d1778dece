-- The tables. Codes for status, event and message kind are stored: see perdure.stores.postgres.rows. Times are integer
-- microseconds since the Unix epoch. Text is compared byte by byte, so that an order never depends on a locale.

CREATE SEQUENCE @schema@.incarnations;

-- Every turn rewrites its run's row: pages keep room for that, and are cleaned often. `urgency` is the priority with absent
-- as 0; `definition` a number for (workflow, version); `successor` the incarnation behind `continued_to`, an id that a
-- stranger may have by now.
CREATE TABLE @schema@.runs (
    id text COLLATE "C" NOT NULL,
    incarnation bigint PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    status smallint NOT NULL,
    input bytea NOT NULL,
    seed bigint NOT NULL,
    output bytea,
    error bytea,
    owner text COLLATE "C",
    epoch bigint NOT NULL,
    n bigint NOT NULL,
    inbox bigint NOT NULL,
    seen bigint NOT NULL,
    wake_at bigint,
    listening boolean NOT NULL,
    deadline bigint,
    timeout bigint,
    priority bigint,
    tags text[],
    attributes bytea,
    origin text COLLATE "C",
    parent_id text COLLATE "C",
    parent bigint,
    parent_seq bigint,
    awaited_as text COLLATE "C",
    depth bigint NOT NULL,
    format bigint NOT NULL,
    recoveries bigint NOT NULL,
    fingerprint text COLLATE "C",
    created_at bigint NOT NULL,
    started_at bigint,
    updated_at bigint NOT NULL,
    ended_at bigint,
    continued_to text COLLATE "C",
    successor bigint,
    urgency bigint NOT NULL,
    definition integer NOT NULL,
    -- Texts that go with the run: see perdure.model.carrier.
    carrier bytea,
    -- Since when nobody takes it, whatever its status.
    paused_at bigint,
    -- The gate that it passes as a whole, as JSON, and how many tickets it has.
    gate text,
    tickets integer NOT NULL DEFAULT 0
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Plans are kept, also those made while there was little here. So a statement that names runs says `status + 0`, or `parent + 0`,
-- where it asks for these too: no plan shall come by another index than that of the primary key.
CREATE UNIQUE INDEX runs_by_id ON @schema@.runs (id);
-- Who is due next: one range for each definition, urgency and namespace; and which of these have somebody due, in one range for
-- all namespaces, so that those whose runs only sleep are not asked. (`+ 0`: who means the second one says so, and no plan for one
-- namespace can come by it: that would walk through all others.)
CREATE INDEX runs_due ON @schema@.runs (definition, urgency, namespace, wake_at, incarnation)
    WHERE wake_at IS NOT NULL AND paused_at IS NULL;
CREATE INDEX runs_wake ON @schema@.runs ((definition + 0), (urgency + 0), (wake_at + 0))
    WHERE wake_at IS NOT NULL AND paused_at IS NULL;
CREATE INDEX runs_by_status ON @schema@.runs (status, incarnation);
CREATE INDEX runs_by_workflow ON @schema@.runs (workflow, incarnation);
CREATE INDEX runs_by_namespace ON @schema@.runs (namespace, incarnation);
CREATE INDEX runs_by_origin ON @schema@.runs (origin, incarnation) WHERE origin IS NOT NULL;
CREATE INDEX runs_by_parent ON @schema@.runs (parent, incarnation) WHERE parent IS NOT NULL;
-- What the audit looks for, as far as the row itself says it: empty as long as we make no mistake. (Not `seen` or `inbox`:
-- a column that an index names makes each change of it touch all indexes.)
CREATE INDEX runs_astray ON @schema@.runs (incarnation)
    WHERE wake_at IS NULL AND (status IN (0, 1) OR (status = 2 AND NOT listening));

CREATE TABLE @schema@.tags (
    tag text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    PRIMARY KEY (tag, incarnation)
);

-- What runs can be found by of their attributes: `value` is the key that perdure.model.attributes makes of a value, whose order
-- is that of the values.
CREATE TABLE @schema@.attributes (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    PRIMARY KEY (name, value, incarnation)
);
CREATE INDEX attributes_by_run ON @schema@.attributes (incarnation, name);

CREATE TABLE @schema@.history (
    incarnation bigint NOT NULL,
    n bigint NOT NULL,
    event smallint NOT NULL,
    seq bigint NOT NULL,
    op text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    payload bytea,
    at bigint NOT NULL,
    due bigint,
    began bigint,
    commit_n bigint NOT NULL,
    PRIMARY KEY (incarnation, n)
);

CREATE TABLE @schema@.messages (
    incarnation bigint NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    token text COLLATE "C",
    payload bytea,
    failed boolean NOT NULL,
    at bigint NOT NULL,
    arrival bigint,
    PRIMARY KEY (incarnation, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The dedup ids of messages to runs, for as long as the run exists, and of messages to tokens.
CREATE TABLE @schema@.deliveries (
    incarnation bigint NOT NULL,
    dedup text COLLATE "C" NOT NULL,
    PRIMARY KEY (incarnation, dedup)
);
CREATE TABLE @schema@.token_deliveries (
    namespace text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    dedup text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, token, dedup)
);

-- The place of a message among all that ever came to tokens.
CREATE SEQUENCE @schema@.arrivals;

-- Who waits for a token, oldest first. `served`: the inbox number of the message that the wait was given. A wait for an event
-- stands here too, under a name that no token has: `facets` is what it asks of the payload, `probe` the first of them (or empty),
-- `back` and `back_until` what is given back of an event that it was served and did not read.
CREATE TABLE @schema@.waits (
    place bigserial PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    seq bigint NOT NULL,
    served bigint,
    probe text COLLATE "C",
    facets text[],
    back text[],
    back_until bigint
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX waits_by_token ON @schema@.waits (namespace, token, place) WHERE served IS NULL AND probe IS NULL;
CREATE INDEX waits_by_event ON @schema@.waits (namespace, token, probe, place) WHERE served IS NULL AND probe IS NOT NULL;
CREATE INDEX waits_by_run ON @schema@.waits (incarnation, seq);

-- Messages kept at their token until somebody waits, in order of arrival, which they keep when they are given back.
CREATE TABLE @schema@.kept (
    namespace text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    payload bytea,
    failed boolean NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (namespace, token, arrival)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Who works here. `process` is its description as JSON (newer ones may say more, or less), with what SQL asks for beside it.
CREATE TABLE @schema@.processes (
    owner text COLLATE "C" PRIMARY KEY,
    process bytea NOT NULL,
    namespaces text[],
    workflows text[] NOT NULL,
    versions text[] NOT NULL,
    seen_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE @schema@.run_values (
    incarnation bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (incarnation, key)
);
