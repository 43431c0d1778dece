-- Claims and leases: who may run what, and until when.

-- Each (definition, urgency) that has a run with a wake time, and the earliest of them: one seek in the index each, however many
-- runs and namespaces there are.
CREATE FUNCTION @schema@.urgencies_1(_workflows text[], _versions text[])
RETURNS TABLE (workflow text, version text, urgency bigint, wake_at bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        SELECT d.workflow, d.version, d.definition, h.urgency, h.wake_at
        FROM (
            SELECT DISTINCT s.workflow, s.version, @schema@.definition_1(s.workflow, s.version) AS definition
            FROM unnest(_workflows, _versions) AS s (workflow, version)
        ) AS d
        CROSS JOIN LATERAL (
            SELECT r.urgency, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition + 0 = d.definition
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL ORDER BY r.urgency + 0, r.wake_at + 0 LIMIT 1
        ) AS h
        UNION ALL
        SELECT g.workflow, g.version, g.definition, h.urgency, h.wake_at FROM heads AS g
        CROSS JOIN LATERAL (
            SELECT r.urgency, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition + 0 = g.definition
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL AND r.urgency + 0 > g.urgency
            ORDER BY r.urgency + 0, r.wake_at + 0 LIMIT 1
        ) AS h
    )
    SELECT g.workflow, g.version, g.urgency, g.wake_at FROM heads AS g;
END $$;

-- Of one definition and urgency, the namespaces behind a name and the earliest wake time of each: one seek each.
CREATE FUNCTION @schema@.spaces_1(_definition integer, _urgency bigint, _after text, _most integer)
RETURNS TABLE (namespace text, wake_at bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    _from text := coalesce(_after || chr(1), '');  -- What follows a text, byte by byte.
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        (
            SELECT r.namespace, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition = _definition AND r.urgency = _urgency
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL AND r.namespace >= _from
            ORDER BY r.namespace, r.wake_at LIMIT 1
        )
        UNION ALL
        SELECT h.namespace, h.wake_at FROM heads AS g CROSS JOIN LATERAL (
            SELECT r.namespace, r.wake_at FROM @schema@.runs AS r
            WHERE r.definition = _definition AND r.urgency = _urgency AND r.wake_at IS NOT NULL AND r.paused_at IS NULL
            AND r.namespace > g.namespace
            ORDER BY r.namespace, r.wake_at LIMIT 1
        ) AS h
    )
    SELECT g.namespace, g.wake_at FROM heads AS g LIMIT _most;
END $$;

-- Of one definition and urgency, the namespaces that have somebody due. All of them where there are few namespaces, or few runs
-- due. With many of both, some: those of the runs that are due longest, and those of the namespaces that follow `_after`, up to
-- `reached`, from where to look the next time. So neither those that only sleep nor those that wait behind others make this
-- slow, and every namespace has its turn.
CREATE FUNCTION @schema@.due_spaces_1(
    _workflow text, _version text, _urgency bigint, _namespaces text[], _until bigint, _after text,
    OUT due text[], OUT reached text
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _few CONSTANT integer := 100;
    _near CONSTANT integer := 200;
    _definition integer := @schema@.definition_1(_workflow, _version);
    _count integer;
    _longest text[];
    _next text[];
BEGIN
    IF _namespaces IS NOT NULL THEN
        due := ARRAY(
            SELECT n.namespace FROM unnest(_namespaces) AS n (namespace) CROSS JOIN LATERAL (
                SELECT r.wake_at FROM @schema@.runs AS r
                WHERE r.definition = _definition AND r.urgency = _urgency AND r.namespace = n.namespace
                AND r.wake_at IS NOT NULL AND r.paused_at IS NULL ORDER BY r.wake_at LIMIT 1
            ) AS h WHERE h.wake_at <= _until
        );
        RETURN;
    END IF;
    SELECT array_agg(s.namespace) FILTER (WHERE s.wake_at <= _until), count(*) INTO due, _count
    FROM @schema@.spaces_1(_definition, _urgency, NULL, _few) AS s;
    IF _count < _few THEN
        RETURN;
    END IF;
    SELECT array_agg(DISTINCT d.namespace), count(*) INTO _longest, _count FROM (
        SELECT r.namespace FROM @schema@.runs AS r
        WHERE r.definition + 0 = _definition AND r.urgency + 0 = _urgency AND r.wake_at IS NOT NULL AND r.paused_at IS NULL
        AND r.wake_at + 0 <= _until
        ORDER BY r.wake_at + 0 LIMIT _near
    ) AS d;
    IF _count = _near THEN
        SELECT array_agg(s.namespace) FILTER (WHERE s.wake_at <= _until), max(s.namespace COLLATE "C"), count(*)
        INTO _next, reached, _count FROM @schema@.spaces_1(_definition, _urgency, _after, _few) AS s;
        IF _count < _few THEN
            reached := NULL;  -- The end: from the beginning again.
        END IF;
    END IF;
    due := ARRAY(SELECT unnest(due) UNION SELECT unnest(_longest) UNION SELECT unnest(_next));
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
                AND r.urgency = _urgency AND r.wake_at IS NOT NULL AND r.paused_at IS NULL AND r.wake_at <= _until
                AND r.workflow = g.workflow AND r.version = g.version AND r.format <= _format
                AND r.incarnation <> ALL (_but)
                ORDER BY r.wake_at, r.incarnation LIMIT _quota
            ) AS c
        ) AS ranked
        ORDER BY ranked.place, ranked.wake_at, ranked.incarnation LIMIT _room
    );
END $$;

-- Greater priority first; within one, the namespaces take turns. What others hold locked is left to them. `_after`: what the last
-- row of the last call said, where there was one without a run.
CREATE FUNCTION @schema@.claim_1(
    _at bigint, _owner text, _namespaces text[], _workflows text[], _versions text[], _limit integer, _lease bigint,
    _format bigint, _after text
) RETURNS TABLE (was smallint, failed_on text, run @schema@.runs, messages @schema@.messages[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    _now bigint := coalesce(_at, @schema@.clock_1());
    _urgency record;
    _group record;
    _room integer;
    _quota integer;
    _found bigint[];
    _held bigint[];
    _tried bigint[] := '{}';
    _taken bigint[] := '{}';
    _reached text;
BEGIN
    IF EXISTS (SELECT 1 FROM @schema@.gates AS g WHERE g.wake_at <= _now) THEN
        PERFORM @schema@.admit_due_1(_now);
    END IF;
    FOR _urgency IN
        SELECT g.urgency, array_agg(g.workflow) AS workflows, array_agg(g.version) AS versions
        FROM @schema@.urgencies_1(_workflows, _versions) AS g
        WHERE g.wake_at <= _now GROUP BY g.urgency ORDER BY g.urgency DESC
    LOOP
        EXIT WHEN cardinality(_taken) >= _limit;
        SELECT _urgency.urgency, array_agg(s.workflow) FILTER (WHERE n.namespace IS NOT NULL) AS workflows,
            array_agg(s.version) FILTER (WHERE n.namespace IS NOT NULL) AS versions,
            array_agg(n.namespace) FILTER (WHERE n.namespace IS NOT NULL) AS namespaces,
            count(DISTINCT n.namespace)::integer AS spaces, min(d.reached COLLATE "C") AS reached
        INTO _group
        FROM unnest(_urgency.workflows, _urgency.versions) AS s (workflow, version)
        CROSS JOIN LATERAL @schema@.due_spaces_1(s.workflow, s.version, _urgency.urgency, _namespaces, _now, _after) AS d
        LEFT JOIN LATERAL unnest(d.due) AS n (namespace) ON true;
        _reached := least(_reached COLLATE "C", _group.reached);
        CONTINUE WHEN _group.spaces = 0;
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
                -- (Said so that no plan can come by the index of wake times: it would walk through all of it.)
                SELECT r.incarnation FROM @schema@.runs AS r
                WHERE r.incarnation = ANY (_found) AND coalesce(r.wake_at <= _now, false) AND r.paused_at IS NULL
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
    IF _reached IS NOT NULL THEN
        RETURN QUERY SELECT NULL::smallint, _reached, NULL::@schema@.runs, NULL::@schema@.messages[];
    END IF;
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
        SELECT g.*, @schema@.definition_1(g.workflow, g.version) AS definition
        FROM @schema@.urgencies_1(_workflows, _versions) AS g ORDER BY g.wake_at
    LOOP
        EXIT WHEN _group.wake_at >= _earliest;
        IF _namespaces IS NULL THEN
            SELECT r.wake_at INTO _here FROM @schema@.runs AS r
            WHERE r.definition + 0 = _group.definition AND r.urgency + 0 = _group.urgency
            AND r.wake_at IS NOT NULL AND r.paused_at IS NULL
            AND r.workflow = _group.workflow AND r.version = _group.version AND r.format <= _format
            ORDER BY r.wake_at + 0 LIMIT 1;
        ELSE
            SELECT min(h.wake_at) INTO _here FROM unnest(_namespaces) AS n (namespace) CROSS JOIN LATERAL (
                SELECT r.wake_at FROM @schema@.runs AS r
                WHERE r.definition = _group.definition AND r.urgency = _group.urgency AND r.namespace = n.namespace
                AND r.wake_at IS NOT NULL AND r.paused_at IS NULL
                AND r.workflow = _group.workflow AND r.version = _group.version AND r.format <= _format
                ORDER BY r.wake_at, r.incarnation LIMIT 1
            ) AS h;
        END IF;
        _earliest := least(_earliest, _here);
    END LOOP;
    RETURN least(_earliest, (SELECT min(g.wake_at) FROM @schema@.gates AS g WHERE g.wake_at IS NOT NULL));
END $$;

-- Lock, of runs at their epochs, those that are still held; returns them. What somebody else has locked just now is not waited
-- for, so that one row costs none of the others; or so long (`_patience`, as lock_timeout takes it) for each, until one takes
-- longer.
CREATE FUNCTION @schema@.still_held_1(_owner text, _runs bigint[], _epochs bigint[], _patience text) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    IF _patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', _patience, true);
        BEGIN
            PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) ORDER BY incarnation FOR NO KEY UPDATE;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END IF;
    RETURN ARRAY(
        SELECT r.incarnation FROM unnest(_runs, _epochs) AS h (incarnation, epoch)
        JOIN @schema@.runs AS r ON r.incarnation = h.incarnation AND r.epoch = h.epoch
        WHERE r.owner = _owner AND r.status + 0 = 1 FOR NO KEY UPDATE OF r SKIP LOCKED
    );
END $$;

-- Push on the leases that are still held at their epoch; those, with their inbox numbers. What stays locked by others is told
-- as not pushed: it is held as it stands.
CREATE FUNCTION @schema@.renew_1(
    _at bigint, _owner text, _lease bigint, _runs bigint[], _epochs bigint[], _patience text
) RETURNS TABLE (held bigint, held_at bigint, inbox_number bigint, pushed boolean) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _free bigint[] := @schema@.still_held_1(_owner, _runs, _epochs, _patience);
    _now bigint := coalesce(_at, @schema@.clock_1());
BEGIN
    RETURN QUERY
    UPDATE @schema@.runs AS r SET wake_at = _now + _lease WHERE r.incarnation = ANY (_free)
    RETURNING r.incarnation, r.epoch, r.inbox, true;
    IF cardinality(_free) < cardinality(_runs) THEN
        RETURN QUERY
        SELECT r.incarnation, r.epoch, r.inbox, false FROM unnest(_runs, _epochs) AS h (incarnation, epoch)
        JOIN @schema@.runs AS r ON r.incarnation = h.incarnation AND r.epoch = h.epoch
        WHERE r.owner = _owner AND r.status + 0 = 1 AND r.incarnation <> ALL (_free);
    END IF;
END $$;

-- Give back what is still held, due now; not counted as a recovery. Returns how many, and those that stay locked by others:
-- they were passed over.
CREATE FUNCTION @schema@.release_1(
    _at bigint, _owner text, _runs bigint[], _epochs bigint[], _patience text, OUT released integer, OUT locked bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    _free bigint[] := @schema@.still_held_1(_owner, _runs, _epochs, _patience);
    _now bigint := coalesce(_at, @schema@.clock_1());
BEGIN
    UPDATE @schema@.runs AS r SET status = 0, wake_at = _now, updated_at = _now, owner = NULL, epoch = r.epoch + 1
    WHERE r.incarnation = ANY (_free);
    released := cardinality(_free);
    locked := ARRAY(
        SELECT r.incarnation FROM unnest(_runs, _epochs) AS h (incarnation, epoch)
        JOIN @schema@.runs AS r ON r.incarnation = h.incarnation AND r.epoch = h.epoch
        WHERE r.owner = _owner AND r.status + 0 = 1
    );
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
