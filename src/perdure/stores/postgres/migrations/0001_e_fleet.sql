-- The fleet: who works here, and which runs nobody among them can take.

CREATE FUNCTION @schema@.beat_1(
    _at bigint, _ttl bigint, _owner text, _process bytea, _namespaces text[], _workflows text[], _versions text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := coalesce(_at, @schema@.clock_1());
BEGIN
    DELETE FROM @schema@.processes WHERE owner IN (
        SELECT owner FROM @schema@.processes WHERE expires_at <= _now ORDER BY owner FOR UPDATE SKIP LOCKED
    );
    INSERT INTO @schema@.processes VALUES (_owner, _process, _namespaces, _workflows, _versions, _now, _now + _ttl)
    ON CONFLICT (owner) DO UPDATE SET process = excluded.process, namespaces = excluded.namespaces,
        workflows = excluded.workflows, versions = excluded.versions, seen_at = excluded.seen_at,
        expires_at = excluded.expires_at;
END $$;

-- Runs due at a time that no member serves, by incarnation. Of each definition and urgency the head is looked at; what follows
-- only where nobody serves all of it; and each namespace only where somebody serves some of it.
CREATE FUNCTION @schema@.unserved_1(_now bigint, _until bigint, _most integer)
RETURNS TABLE (found bigint, found_id text, found_workflow text, found_version text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE served AS (
        SELECT s.workflow, s.version, p.namespaces FROM @schema@.processes AS p
        CROSS JOIN LATERAL unnest(p.workflows, p.versions) AS s (workflow, version) WHERE p.expires_at > _now
    ), heads AS (
        (
            SELECT r.definition, r.urgency, r.wake_at, r.workflow, r.version FROM @schema@.runs AS r
            WHERE r.wake_at IS NOT NULL AND r.paused_at IS NULL
            ORDER BY r.definition + 0, r.urgency + 0, r.wake_at + 0 LIMIT 1
        )
        UNION ALL
        SELECT h.* FROM heads AS g CROSS JOIN LATERAL (
            SELECT r.definition, r.urgency, r.wake_at, r.workflow, r.version FROM @schema@.runs AS r
            WHERE r.wake_at IS NOT NULL AND r.paused_at IS NULL
            AND (r.definition + 0, r.urgency + 0) > (g.definition, g.urgency)
            ORDER BY r.definition + 0, r.urgency + 0, r.wake_at + 0 LIMIT 1
        ) AS h
    ), lacking AS (
        SELECT g.definition, g.urgency, g.workflow, g.version, EXISTS (
            SELECT 1 FROM served AS s WHERE s.workflow = g.workflow AND s.version = g.version
        ) AS partly
        FROM heads AS g
        WHERE g.wake_at <= _until AND NOT EXISTS (
            SELECT 1 FROM served AS s WHERE s.workflow = g.workflow AND s.version = g.version AND s.namespaces IS NULL
        )
    )
    SELECT d.incarnation, d.id, d.workflow, d.version FROM (
        SELECT a.* FROM lacking AS g CROSS JOIN LATERAL (
            SELECT r.incarnation, r.id, r.workflow, r.version FROM @schema@.runs AS r
            WHERE r.definition + 0 = g.definition AND r.urgency + 0 = g.urgency
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL
            AND r.wake_at + 0 <= _until AND r.status + 0 < 3 AND r.workflow = g.workflow AND r.version = g.version
            ORDER BY r.wake_at + 0 LIMIT _most
        ) AS a WHERE NOT g.partly
        UNION ALL
        SELECT a.* FROM lacking AS g CROSS JOIN LATERAL (
            SELECT t.namespace FROM @schema@.spaces_1(g.definition, g.urgency, NULL, NULL) AS t
            WHERE t.wake_at <= _until AND NOT EXISTS (
                SELECT 1 FROM served AS s WHERE s.workflow = g.workflow AND s.version = g.version
                AND t.namespace = ANY (s.namespaces)
            )
        ) AS n CROSS JOIN LATERAL (
            SELECT r.incarnation, r.id, r.workflow, r.version FROM @schema@.runs AS r
            WHERE r.definition = g.definition AND r.urgency = g.urgency AND r.namespace = n.namespace
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL AND r.wake_at <= _until
            AND r.status < 3 AND r.workflow = g.workflow AND r.version = g.version
            ORDER BY r.wake_at LIMIT _most
        ) AS a WHERE g.partly
    ) AS d
    ORDER BY d.incarnation LIMIT _most;
END $$;

-- Block those of these runs that are still due and unserved; returns them. `_errors`: the error of each.
CREATE FUNCTION @schema@.block_unserved_1(_at bigint, _grace bigint, _most integer, _runs bigint[], _errors bytea[])
RETURNS TABLE (blocked bigint) LANGUAGE plpgsql AS $$
DECLARE
    _now bigint;
    _still bigint[];
BEGIN
    -- A beat waits, or was seen: none slips between the look and the writing.
    LOCK TABLE @schema@.processes IN SHARE MODE;
    _now := coalesce(_at, @schema@.clock_1());
    _still := ARRAY(
        SELECT u.found FROM @schema@.unserved_1(_now, _now - _grace, _most) AS u WHERE u.found = ANY (_runs)
    );
    -- What somebody else is at just now is due no more, or is found the next time.
    _still := ARRAY(
        SELECT incarnation FROM @schema@.runs
        WHERE incarnation = ANY (_still) AND coalesce(wake_at <= _now - _grace, false) AND status + 0 < 3
        ORDER BY incarnation FOR NO KEY UPDATE SKIP LOCKED
    );
    RETURN QUERY
    UPDATE @schema@.runs AS r SET epoch = r.epoch + (r.status = 1)::integer, status = 3, owner = NULL, wake_at = NULL,
        listening = false, error = b.error, fingerprint = '', updated_at = _now
    FROM unnest(_runs, _errors) AS b (incarnation, error)
    WHERE r.incarnation = b.incarnation AND r.incarnation = ANY (_still) RETURNING r.incarnation;
END $$;
