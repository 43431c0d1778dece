-- Claims and leases: who may run what, and until when.

-- Each (definition, namespace, urgency) that has a run with a wake time, and the earliest of them: one seek in the index each,
-- however many runs there are. `_namespaces` NULL: all.
CREATE FUNCTION @schema@.groups_1(_workflows text[], _versions text[], _namespaces text[])
RETURNS TABLE (workflow text, version text, namespace text, urgency bigint, wake_at bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    IF _namespaces IS NULL THEN
        RETURN QUERY
        WITH RECURSIVE heads AS (
            SELECT d.workflow, d.version, d.definition, h.namespace, h.urgency, h.wake_at
            FROM (
                SELECT DISTINCT s.workflow, s.version, @schema@.definition_1(s.workflow, s.version) AS definition
                FROM unnest(_workflows, _versions) AS s (workflow, version)
            ) AS d
            CROSS JOIN LATERAL (
                SELECT r.namespace, r.urgency, r.wake_at FROM @schema@.runs AS r
                WHERE r.definition = d.definition AND r.wake_at IS NOT NULL
                ORDER BY r.namespace, r.urgency, r.wake_at LIMIT 1
            ) AS h
            UNION ALL
            SELECT g.workflow, g.version, g.definition, h.namespace, h.urgency, h.wake_at FROM heads AS g
            CROSS JOIN LATERAL (
                SELECT r.namespace, r.urgency, r.wake_at FROM @schema@.runs AS r
                WHERE r.definition = g.definition AND r.wake_at IS NOT NULL
                AND (r.namespace, r.urgency) > (g.namespace, g.urgency)
                ORDER BY r.namespace, r.urgency, r.wake_at LIMIT 1
            ) AS h
        )
        SELECT g.workflow, g.version, g.namespace, g.urgency, g.wake_at FROM heads AS g;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE heads AS (
        SELECT d.workflow, d.version, d.definition, d.namespace, h.urgency, h.wake_at
        FROM (
            SELECT DISTINCT s.workflow, s.version, @schema@.definition_1(s.workflow, s.version) AS definition, n.namespace
            FROM unnest(_workflows, _versions) AS s (workflow, version) CROSS JOIN unnest(_namespaces) AS n (namespace)
        ) AS d
        CROSS JOIN LATERAL (
            SELECT r.urgency, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition = d.definition AND r.namespace = d.namespace AND r.wake_at IS NOT NULL
            ORDER BY r.urgency, r.wake_at LIMIT 1
        ) AS h
        UNION ALL
        SELECT g.workflow, g.version, g.definition, g.namespace, h.urgency, h.wake_at FROM heads AS g
        CROSS JOIN LATERAL (
            SELECT r.urgency, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition = g.definition AND r.namespace = g.namespace AND r.wake_at IS NOT NULL
            AND r.urgency > g.urgency
            ORDER BY r.urgency, r.wake_at LIMIT 1
        ) AS h
    )
    SELECT g.workflow, g.version, g.namespace, g.urgency, g.wake_at FROM heads AS g;
END $$;

-- The runs of one urgency that come first: the oldest of each namespace, then the second oldest of each, and so on.
CREATE FUNCTION @schema@.candidates_1(
    _workflows text[], _versions text[], _namespaces text[], _urgency bigint, _until bigint, _format bigint, _room integer,
    _quota integer, _but bigint[]
) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT ranked.incarnation FROM (
            SELECT c.incarnation, c.wake_at,
                row_number() OVER (PARTITION BY g.namespace ORDER BY c.wake_at, c.incarnation) AS place
            FROM unnest(_workflows, _versions, _namespaces) AS g (workflow, version, namespace)
            CROSS JOIN LATERAL (
                SELECT r.incarnation, r.wake_at FROM @schema@.runs AS r
                WHERE r.definition = @schema@.definition_1(g.workflow, g.version) AND r.namespace = g.namespace
                AND r.urgency = _urgency AND r.wake_at IS NOT NULL AND r.wake_at <= _until
                AND r.workflow = g.workflow AND r.version = g.version AND r.format <= _format
                AND r.incarnation <> ALL (_but)
                ORDER BY r.wake_at, r.incarnation LIMIT _quota
            ) AS c
        ) AS ranked
        ORDER BY ranked.place, ranked.wake_at, ranked.incarnation LIMIT _room
    );
END $$;

-- Greater priority first; within one, the namespaces take turns. What others hold locked is left to them.
CREATE FUNCTION @schema@.claim_1(
    _at bigint, _owner text, _namespaces text[], _workflows text[], _versions text[], _limit integer, _lease bigint,
    _format bigint
) RETURNS TABLE (was smallint, failed_on text, run @schema@.runs, messages @schema@.messages[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    _now bigint := coalesce(_at, @schema@.clock_1());
    _group record;
    _room integer;
    _quota integer;
    _found bigint[];
    _held bigint[];
    _tried bigint[] := '{}';
    _taken bigint[] := '{}';
BEGIN
    IF EXISTS (SELECT 1 FROM @schema@.gates AS g WHERE g.wake_at <= _now) THEN
        PERFORM @schema@.admit_due_1(_now);
    END IF;
    FOR _group IN
        SELECT g.urgency, array_agg(g.workflow) AS workflows, array_agg(g.version) AS versions,
            array_agg(g.namespace) AS namespaces, count(DISTINCT g.namespace)::integer AS spaces
        FROM @schema@.groups_1(_workflows, _versions, _namespaces) AS g
        WHERE g.wake_at <= _now GROUP BY g.urgency ORDER BY g.urgency DESC
    LOOP
        FOR _look IN 1 .. 3 LOOP
            _room := _limit - cardinality(_taken);
            EXIT WHEN _room <= 0;
            _quota := (_room + _group.spaces - 1) / _group.spaces;
            _found := @schema@.candidates_1(
                _group.workflows, _group.versions, _group.namespaces, _group.urgency, _now, _format, _room, _quota, _tried
            );
            IF cardinality(_found) < _room AND _quota < _room THEN
                _found := @schema@.candidates_1(
                    _group.workflows, _group.versions, _group.namespaces, _group.urgency, _now, _format, _room, _room, _tried
                );
            END IF;
            _held := ARRAY(
                SELECT r.incarnation FROM @schema@.runs AS r WHERE r.incarnation = ANY (_found) AND r.wake_at <= _now
                FOR NO KEY UPDATE SKIP LOCKED
            );
            _taken := _taken || ARRAY(
                SELECT f.incarnation FROM unnest(_found) WITH ORDINALITY AS f (incarnation, place)
                WHERE f.incarnation = ANY (_held) ORDER BY f.place
            );
            EXIT WHEN cardinality(_held) = cardinality(_found);
            _tried := _tried || _found;
        END LOOP;
    END LOOP;
    RETURN QUERY
    WITH claimed AS (
        UPDATE @schema@.runs AS r SET status = 1, owner = _owner, wake_at = _now + _lease, updated_at = _now,
            recoveries = r.recoveries + (r.status = 1)::integer, epoch = r.epoch + 1, listening = false, fingerprint = NULL
        FROM (
            SELECT o.incarnation, o.status, o.fingerprint, t.place
            FROM unnest(_taken) WITH ORDINALITY AS t (incarnation, place)
            JOIN @schema@.runs AS o ON o.incarnation = t.incarnation
        ) AS before
        WHERE r.incarnation = before.incarnation
        RETURNING before.status AS was, before.fingerprint AS failed_on, before.place, r AS run
    )
    SELECT c.was, c.failed_on, c.run,
        CASE WHEN (c.run).inbox > 0 THEN
            (SELECT array_agg(m ORDER BY m.number) FROM @schema@.messages AS m WHERE m.incarnation = (c.run).incarnation)
        END
    FROM claimed AS c ORDER BY c.place;
END $$;

-- The earliest wake time among what can be claimed, due or not. (The groups' own earliest may be of runs that cannot.)
CREATE FUNCTION @schema@.next_wake_1(_workflows text[], _versions text[], _namespaces text[], _format bigint) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _group record;
    _here bigint;
    _earliest bigint;
BEGIN
    FOR _group IN
        SELECT g.* FROM @schema@.groups_1(_workflows, _versions, _namespaces) AS g ORDER BY g.wake_at
    LOOP
        EXIT WHEN _group.wake_at >= _earliest;
        SELECT r.wake_at INTO _here FROM @schema@.runs AS r
        WHERE r.definition = @schema@.definition_1(_group.workflow, _group.version) AND r.namespace = _group.namespace
        AND r.urgency = _group.urgency AND r.wake_at IS NOT NULL
        AND r.workflow = _group.workflow AND r.version = _group.version AND r.format <= _format
        ORDER BY r.wake_at, r.incarnation LIMIT 1;
        _earliest := least(_earliest, _here);
    END LOOP;
    RETURN least(_earliest, (SELECT min(g.wake_at) FROM @schema@.gates AS g WHERE g.wake_at IS NOT NULL));
END $$;

-- Push on the leases that are still held at their epoch; those, with their inbox numbers.
CREATE FUNCTION @schema@.renew_1(_at bigint, _owner text, _lease bigint, _runs bigint[], _epochs bigint[])
RETURNS TABLE (held bigint, held_at bigint, inbox_number bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _now bigint;
BEGIN
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) ORDER BY incarnation FOR NO KEY UPDATE;
    _now := coalesce(_at, @schema@.clock_1());
    RETURN QUERY
    UPDATE @schema@.runs AS r SET wake_at = _now + _lease FROM unnest(_runs, _epochs) AS h (incarnation, epoch)
    WHERE r.incarnation = h.incarnation AND r.epoch = h.epoch AND r.owner = _owner AND r.status + 0 = 1
    RETURNING r.incarnation, r.epoch, r.inbox;
END $$;

-- Give back what is still held, due now; not counted as a recovery. Returns how many.
CREATE FUNCTION @schema@.release_1(_at bigint, _owner text, _runs bigint[], _epochs bigint[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint;
    _released integer;
BEGIN
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) ORDER BY incarnation FOR NO KEY UPDATE;
    _now := coalesce(_at, @schema@.clock_1());
    UPDATE @schema@.runs AS r SET status = 0, wake_at = _now, updated_at = _now, owner = NULL, epoch = r.epoch + 1
    FROM unnest(_runs, _epochs) AS h (incarnation, epoch)
    WHERE r.incarnation = h.incarnation AND r.epoch = h.epoch AND r.owner = _owner AND r.status + 0 = 1;
    GET DIAGNOSTICS _released = ROW_COUNT;
    RETURN _released;
END $$;

-- Make due the runs that are blocked by other code than is served now; returns how many.
CREATE FUNCTION @schema@.unblock_1(_at bigint, _workflows text[], _versions text[], _fingerprints text[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    _now bigint;
    _blocked bigint[];
BEGIN
    _blocked := ARRAY(
        SELECT r.incarnation FROM @schema@.runs AS r
        WHERE r.status = 3 AND EXISTS (
            SELECT 1 FROM unnest(_workflows, _versions, _fingerprints) AS s (workflow, version, fingerprint)
            WHERE s.workflow = r.workflow AND s.version = r.version AND s.fingerprint <> r.fingerprint
        )
        ORDER BY r.incarnation FOR NO KEY UPDATE
    );
    _now := coalesce(_at, @schema@.clock_1());
    UPDATE @schema@.runs SET wake_at = least(coalesce(wake_at, _now), _now), updated_at = _now
    WHERE incarnation = ANY (_blocked);
    RETURN cardinality(_blocked);
END $$;

-- The runs that nothing would ever wake; with `_heal`, they are made due.
CREATE FUNCTION @schema@.audit_1(_at bigint, _heal boolean)
RETURNS TABLE (found bigint, found_id text, found_status smallint, found_listening boolean) LANGUAGE plpgsql AS $$
DECLARE
    _now bigint := coalesce(_at, @schema@.clock_1());
    _astray bigint[];
BEGIN
    _astray := ARRAY(
        SELECT r.incarnation FROM @schema@.runs AS r
        WHERE r.wake_at IS NULL AND (r.status IN (0, 1) OR (r.status = 2 AND NOT r.listening))
        UNION
        SELECT r.incarnation FROM @schema@.messages AS m CROSS JOIN LATERAL (
            SELECT * FROM @schema@.runs WHERE incarnation = m.incarnation OFFSET 0
        ) AS r
        WHERE m.number > r.seen AND r.status = 2 AND r.listening AND r.wake_at IS NULL
        ORDER BY 1
    );
    RETURN QUERY SELECT r.incarnation, r.id, r.status, r.listening FROM @schema@.runs AS r
    WHERE r.incarnation = ANY (_astray) ORDER BY r.incarnation;
    IF _heal AND cardinality(_astray) > 0 THEN
        PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_astray) ORDER BY incarnation FOR NO KEY UPDATE;
        UPDATE @schema@.runs SET wake_at = _now, updated_at = _now
        WHERE incarnation = ANY (_astray) AND wake_at IS NULL AND status + 0 < 3;
    END IF;
END $$;
