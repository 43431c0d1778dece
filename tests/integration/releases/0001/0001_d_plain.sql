-- The short way for the plain writes that make up the load: turns that only add to their own run, and new runs, many in a few
-- statements. They follow one another in a batch, each on another run, so that they do not see each other.

-- Apply the first writes of a batch that are plain also by what the store holds; returns how many, and the incarnations of the
-- new runs among them. The others are for `write_1`: those whose fence does not hold, whose inbox moved, whose id is taken, or
-- whose end concerns a token, or a run that is in this batch itself.
--   t_...   turns: their place in the batch, and what they write; c_...: consumed messages, by the number of their turn here
--   r_...   new runs: their place in the batch, and their rows, where their first turn is made already as it leaves them
--   g_..., a_...   their tags, and their attributes that they can be found by
--   h_...   history: its run is that of turn h_of, or of new run -h_of
CREATE FUNCTION @schema@.plain_1(
    _at bigint, _size integer,
    t_place integer[], t_run bigint[], t_owner text[], t_epoch bigint[], t_n bigint[], t_more integer[], t_status smallint[],
    t_wake_at bigint[], t_listening boolean[], t_seen bigint[], t_progress boolean[], t_started_at bigint[], t_output bytea[],
    t_error bytea[], t_fingerprint text[], c_of integer[], c_number bigint[],
    r_place integer[], r_id text[], r_workflow text[], r_version text[], r_input bytea[], r_seed bigint[], r_namespace text[],
    r_priority bigint[], r_attributes bytea[], r_origin text[], r_carrier bytea[], r_parent_id text[], r_parent bigint[], r_parent_seq bigint[],
    r_awaited_as text[], r_depth bigint[], r_start_at bigint[], r_timeout bigint[], r_format bigint[], r_status smallint[],
    r_owner text[], r_more integer[], r_seen bigint[], r_wake_at bigint[], r_listening boolean[], r_started_at bigint[],
    r_output bytea[], r_error bytea[], r_fingerprint text[], g_of integer[], g_tag text[], a_of integer[], a_name text[], a_value text[],
    h_of integer[], h_place integer[], h_event smallint[], h_seq bigint[], h_op text[], h_name text[], h_payload bytea[],
    h_at bigint[], h_due bigint[], h_began bigint[]
) RETURNS TABLE (applied integer, begun bigint[]) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _now bigint;
    _turns integer := cardinality(t_run);
    _news integer := cardinality(r_id);
    _parents bigint[] := '{}';
    _hurdle integer;
    _count integer;
BEGIN
    applied := _size;
    IF _turns > 0 THEN
        IF 4 <= ANY (t_status) THEN
            _parents := ARRAY(
                SELECT r.parent FROM unnest(t_run, t_status) AS t (run, status)
                JOIN @schema@.runs AS r ON r.incarnation = t.run WHERE t.status >= 4 AND r.parent + 0 IS NOT NULL
            );
        END IF;
        IF _turns > 1 OR cardinality(_parents) > 0 THEN
            PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (t_run || _parents) ORDER BY incarnation FOR NO KEY UPDATE;
        END IF;
        SELECT min(t.place) INTO _hurdle
        FROM unnest(t_place, t_run, t_owner, t_epoch, t_n, t_status, t_seen) AS t (place, run, owner, epoch, n, status, seen)
        LEFT JOIN @schema@.runs AS r ON r.incarnation = t.run
        WHERE r.status IS DISTINCT FROM 1 OR r.owner IS DISTINCT FROM t.owner OR r.epoch <> t.epoch OR r.n <> t.n
            OR (t.status > 1 AND r.inbox > t.seen)
            OR (t.status >= 4 AND (
                (r.awaited_as IS NOT NULL AND r.parent = ANY (t_run))
                OR r.tickets > 0
                OR EXISTS (SELECT 1 FROM @schema@.waits AS w WHERE w.incarnation = t.run)
            ));
        applied := least(applied, _hurdle);
    END IF;
    IF _news > 0 THEN
        SELECT min(f.place) INTO _hurdle FROM unnest(r_place, r_id) AS f (place, id) JOIN @schema@.runs AS r ON r.id = f.id;
        applied := least(applied, _hurdle);
    END IF;
    _now := coalesce(_at, @schema@.clock_1());

    IF _turns > 0 THEN
        UPDATE @schema@.runs AS r SET n = r.n + t.more, seen = t.seen,
            recoveries = CASE WHEN t.progress THEN 0 ELSE r.recoveries END,
            started_at = coalesce(r.started_at, t.started_at), updated_at = _now, status = t.status,
            owner = CASE WHEN t.status = 1 THEN r.owner END,
            wake_at = CASE WHEN t.status = 1 THEN r.wake_at ELSE t.wake_at END,
            listening = t.listening, output = t.output, error = t.error, fingerprint = t.fingerprint,
            ended_at = CASE WHEN t.status >= 4 THEN _now ELSE r.ended_at END
        FROM unnest(
            t_place, t_run, t_owner, t_epoch, t_n, t_more, t_status, t_wake_at, t_listening, t_seen, t_progress, t_started_at,
            t_output, t_error, t_fingerprint
        ) AS t (
            place, run, owner, epoch, n, more, status, wake_at, listening, seen, progress, started_at, output, error, fingerprint
        )
        -- The fence once more: a turn by itself was not locked before.
        WHERE r.incarnation = t.run AND t.place < applied AND r.status + 0 = 1 AND r.owner = t.owner AND r.epoch = t.epoch
            AND r.n = t.n AND (t.status = 1 OR r.inbox <= t.seen);
        IF _turns = 1 AND t_place[1] < applied THEN
            GET DIAGNOSTICS _count = ROW_COUNT;
            IF _count = 0 THEN
                applied := t_place[1];  -- It changed between the look and the update.
            END IF;
        END IF;
        IF cardinality(c_of) > 0 THEN
            DELETE FROM @schema@.messages AS m USING unnest(c_of, c_number) AS c (line, number)
            WHERE m.incarnation = t_run[c.line] AND m.number = c.number AND t_place[c.line] < applied;
        END IF;
        IF cardinality(_parents) > 0 THEN
            PERFORM @schema@.tell_all_1(t_run, t_place, t_status, applied, _now);
        END IF;
    END IF;

    IF _news > 0 THEN
        -- In the order of their ids: two batches that start the same runs wait for each other, never in a circle. Numbered in
        -- the order of the batch.
        begun := ARRAY(SELECT nextval('@schema@.incarnations') FROM generate_series(1, _news));
        INSERT INTO @schema@.runs (
            id, incarnation, workflow, version, namespace, status, input, seed, output, error, owner, epoch, n, inbox, seen,
            wake_at, listening, deadline, timeout, priority, tags, attributes, origin, parent_id, parent, parent_seq,
            awaited_as, depth, format, recoveries, fingerprint, created_at, started_at, updated_at, ended_at, urgency, definition,
            carrier
        )
        SELECT f.id, begun[f.line], f.workflow, f.version, f.namespace,
            coalesce(f.status, CASE WHEN f.start_at > _now THEN 2 ELSE 0 END), f.input, f.seed, f.output, f.error, f.owner,
            CASE WHEN f.status IS NULL THEN 0 ELSE 1 END, f.more, 0, f.seen,
            CASE WHEN f.status IS NULL THEN greatest(_now, f.start_at) ELSE f.wake_at END, f.listening,
            greatest(_now, f.start_at) + f.timeout, f.timeout, f.priority,
            CASE WHEN cardinality(g_of) > 0 THEN
                (SELECT array_agg(g.tag ORDER BY g.line) FROM unnest(g_of, g_tag) WITH ORDINALITY AS g (of, tag, line)
                WHERE g.of = f.line)
            END,
            f.attributes, f.origin, f.parent_id, f.parent, f.parent_seq, f.awaited_as, f.depth, f.format, 0, f.fingerprint,
            _now, f.started_at, _now, CASE WHEN f.status >= 4 THEN _now END, coalesce(f.priority, 0),
            @schema@.definition_1(f.workflow, f.version), f.carrier
        FROM unnest(
            r_place, r_id, r_workflow, r_version, r_input, r_seed, r_namespace, r_priority, r_attributes, r_origin, r_carrier, r_parent_id,
            r_parent, r_parent_seq, r_awaited_as, r_depth, r_start_at, r_timeout, r_format, r_status, r_owner, r_more, r_seen,
            r_wake_at, r_listening, r_started_at, r_output, r_error, r_fingerprint
        ) WITH ORDINALITY AS f (
            place, id, workflow, version, input, seed, namespace, priority, attributes, origin, carrier, parent_id,
            parent, parent_seq, awaited_as, depth, start_at, timeout, format, status, owner, more, seen,
            wake_at, listening, started_at, output, error, fingerprint, line
        )
        WHERE f.place < applied ORDER BY f.id COLLATE "C"
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS _count = ROW_COUNT;
        IF _count < (SELECT count(*) FROM unnest(r_place) AS f (place) WHERE f.place < applied) THEN
            RAISE serialization_failure USING MESSAGE = 'an id was taken this very moment';
        END IF;
        IF cardinality(g_of) > 0 THEN
            INSERT INTO @schema@.tags
            SELECT DISTINCT g.tag, begun[g.of] FROM unnest(g_of, g_tag) AS g (of, tag) WHERE r_place[g.of] < applied;
        END IF;
        IF cardinality(a_of) > 0 THEN
            INSERT INTO @schema@.attributes
            SELECT a.name, a.value, begun[a.of] FROM unnest(a_of, a_name, a_value) AS a (of, name, value)
            WHERE r_place[a.of] < applied;
        END IF;
    END IF;

    INSERT INTO @schema@.history
    SELECT CASE WHEN h.of > 0 THEN t_run[h.of] ELSE begun[-h.of] END,
        CASE WHEN h.of > 0 THEN t_n[h.of] ELSE 0 END + h.place, h.event, h.seq, h.op, h.name, h.payload, h.at, h.due, h.began,
        CASE WHEN h.of > 0 THEN t_n[h.of] ELSE 0 END
    FROM unnest(h_of, h_place, h_event, h_seq, h_op, h_name, h_payload, h_at, h_due, h_began)
        AS h (of, place, event, seq, op, name, payload, at, due, began)
    WHERE applied = _size OR CASE WHEN h.of > 0 THEN t_place[h.of] ELSE r_place[-h.of] END < applied;
    RETURN NEXT;
END $$;

-- One plain turn by itself, as a run of steps in a row makes them. False: nothing was applied, it is not that plain.
CREATE FUNCTION @schema@.turn_1(
    _at bigint, _run bigint, _owner text, _epoch bigint, _n bigint, _status smallint, _wake_at bigint, _listening boolean,
    _seen bigint, _progress boolean, _started_at bigint, _output bytea, _error bytea, _fingerprint text, _consumed bigint[],
    h_event smallint[], h_seq bigint[], h_op text[], h_name text[], h_payload bytea[], h_at bigint[], h_due bigint[],
    h_began bigint[]
) RETURNS boolean LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _now bigint := coalesce(_at, @schema@.clock_1());
BEGIN
    IF _status = 1 THEN
        UPDATE @schema@.runs SET n = n + cardinality(h_event), seen = _seen,
            recoveries = CASE WHEN _progress THEN 0 ELSE recoveries END, started_at = coalesce(started_at, _started_at),
            updated_at = _now, output = NULL, error = NULL, fingerprint = NULL
        WHERE incarnation = _run AND status + 0 = 1 AND owner = _owner AND epoch = _epoch AND n = _n;
    ELSE
        UPDATE @schema@.runs SET n = n + cardinality(h_event), seen = _seen,
            recoveries = CASE WHEN _progress THEN 0 ELSE recoveries END, started_at = coalesce(started_at, _started_at),
            updated_at = _now, status = _status, owner = NULL, wake_at = _wake_at, listening = _listening, output = _output,
            error = _error, fingerprint = _fingerprint, ended_at = CASE WHEN _status >= 4 THEN _now ELSE ended_at END
        WHERE incarnation = _run AND status + 0 = 1 AND owner = _owner AND epoch = _epoch AND n = _n AND inbox <= _seen
            AND (_status < 4 OR (
                (awaited_as IS NULL OR parent IS NULL) AND tickets = 0
                AND NOT EXISTS (SELECT 1 FROM @schema@.waits AS w WHERE w.incarnation = _run)
            ));
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF cardinality(_consumed) > 0 THEN
        DELETE FROM @schema@.messages WHERE incarnation = _run AND number = ANY (_consumed);
    END IF;
    INSERT INTO @schema@.history
    SELECT _run, _n + h.place - 1, h.event, h.seq, h.op, h.name, h.payload, h.at, h.due, h.began, _n
    FROM unnest(h_event, h_seq, h_op, h_name, h_payload, h_at, h_due, h_began)
        WITH ORDINALITY AS h (event, seq, op, name, payload, at, due, began, place);
    RETURN true;
END $$;

-- What the parents of the turns up to a place, which have ended their runs, are to hear; each parent's in this order.
CREATE FUNCTION @schema@.tell_all_1(t_run bigint[], t_place integer[], t_status smallint[], _upto integer, _now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH notices AS (
        SELECT p.incarnation, p.inbox + row_number() OVER (PARTITION BY p.incarnation ORDER BY t.place) AS number,
            r.awaited_as, r.status, CASE WHEN r.status = 4 THEN r.output ELSE r.error END AS payload
        FROM unnest(t_run, t_place, t_status) AS t (run, place, status)
        JOIN @schema@.runs AS r ON r.incarnation = t.run
        JOIN @schema@.runs AS p ON p.incarnation = r.parent AND p.status + 0 < 4
        WHERE t.status >= 4 AND t.place < _upto AND r.awaited_as IS NOT NULL
    ), told AS (
        INSERT INTO @schema@.messages (incarnation, number, kind, name, payload, failed, at)
        SELECT n.incarnation, n.number, 'child', n.awaited_as, n.payload, n.status <> 4, _now FROM notices AS n
    )
    UPDATE @schema@.runs AS r SET inbox = n.last, updated_at = _now,
        wake_at = CASE WHEN r.status = 2 AND r.listening THEN least(coalesce(r.wake_at, _now), _now) ELSE r.wake_at END
    FROM (SELECT incarnation, max(number) AS last FROM notices GROUP BY incarnation) AS n
    WHERE r.incarnation = n.incarnation;
END $$;
