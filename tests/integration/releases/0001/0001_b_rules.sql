-- The rules of the Store port (perdure.ports.store), as functions. A function's name ends in its version: a released one is
-- never changed, so that older processes go on with what they know; a new rule is a new function beside it.
--
-- Locks. Every verb takes them in one order: names (tokens, as advisory locks of the transaction), then runs by incarnation.
-- The server has room for few advisory locks: who holds single names holds the schema's names in common, and who would need
-- many holds all of them alone, with one lock.
-- A run's parent and its predecessor always have a smaller incarnation. `write_1` is told what its batch touches, finds what
-- hangs on that, and locks all of it in this order before it changes anything; so batches wait for each other but never in a
-- circle. What each rule decides on, it locks once more before it looks at it: nothing that was read before a lock counts,
-- and each statement sees the newest state. What only turns up on the way (a child that was just born) is waited for briefly:
-- then the whole batch is given up (lock_not_available), and its sender begins it anew.

-- The functions that are called from outside have all plans below them made once for a session: to plan a statement anew for
-- what it is called with takes longer than to run it.

-- The store's clock: the one function that tests replace.
CREATE FUNCTION @schema@.clock_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE FUNCTION @schema@.definition_1(_workflow text, _version text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || left(md5(_workflow || chr(1) || _version), 8))::bit(32)::integer
$$;

CREATE FUNCTION @schema@.status_1(_name text) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT array_position(
        ARRAY['pending', 'running', 'suspended', 'blocked', 'completed', 'failed', 'cancelled', 'dead'], _name
    )::smallint - 1::smallint
$$;

-- ---------------------------------------------------------------- names

CREATE FUNCTION @schema@.name_1(_namespace text, _token text) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT hashtext(_namespace || chr(1) || _token)
$$;

-- Until the transaction ends, nobody else changes who waits at the token and what is kept there.
CREATE FUNCTION @schema@.hold_name_1(_name integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('perdure.names', true) IS DISTINCT FROM 'all' THEN
        PERFORM pg_advisory_xact_lock_shared(hashtext('@schema@.names'), 0);
        PERFORM pg_advisory_xact_lock(hashtext('@schema@'), _name);
    END IF;
END $$;

-- The same for many: each by itself, or all there are, in one lock, where they are more than half of what the server has room
-- for in each of its transactions. (The other half is for tables and indexes.)
CREATE FUNCTION @schema@.hold_names_1(_names integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _name integer;
BEGIN
    IF cardinality(_names) > current_setting('max_locks_per_transaction')::integer / 2 THEN
        PERFORM pg_advisory_xact_lock(hashtext('@schema@.names'), 0);
        PERFORM set_config('perdure.names', 'all', true);
        RETURN;
    END IF;
    PERFORM set_config('perdure.names', 'single', true);
    FOREACH _name IN ARRAY _names LOOP
        PERFORM @schema@.hold_name_1(_name);
    END LOOP;
END $$;

-- What a single write may lock at most, to find out whether there is room for it.
CREATE FUNCTION @schema@.has_room_1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR _name IN 1 .. current_setting('max_locks_per_transaction')::integer / 2 LOOP
        PERFORM pg_advisory_xact_lock_shared(hashtext('@schema@.room'), _name);
    END LOOP;
END $$;

-- ---------------------------------------------------------------- chains and trees

-- The chain of continued runs that begins at a run, as far as it still exists.
CREATE FUNCTION @schema@.chain_1(_first bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _links bigint[] := ARRAY[_first];
    _next bigint := _first;
BEGIN
    LOOP
        SELECT s.incarnation INTO _next
        FROM @schema@.runs AS r JOIN @schema@.runs AS s ON s.incarnation = r.successor WHERE r.incarnation = _next;
        EXIT WHEN _next IS NULL;
        _links := _links || _next;
    END LOOP;
    RETURN _links;
END $$;

-- The last link of the chain that begins at a run, locked; a row of NULLs if there is none.
CREATE FUNCTION @schema@.hold_last_1(_first bigint) RETURNS @schema@.runs LANGUAGE plpgsql AS $$
DECLARE
    _run @schema@.runs;
    _links bigint[] := @schema@.chain_1(_first);
    _last bigint := _links[cardinality(_links)];
BEGIN
    LOOP
        SELECT * INTO _run FROM @schema@.runs WHERE incarnation = _last FOR NO KEY UPDATE;
        EXIT WHEN _run.successor IS NULL;
        _links := @schema@.chain_1(_last);
        EXIT WHEN cardinality(_links) = 1;
        _last := _links[cardinality(_links)];
    END LOOP;
    RETURN _run;
END $$;

-- A run and everything below it, depth first, parents before children. (A cycle of parents ends.)
CREATE FUNCTION @schema@.tree_1(_root bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE tree (incarnation, path) AS (
            SELECT _root, ARRAY[_root]
            UNION ALL
            -- (OFFSET 0: by the index, whatever the planner thinks of how many there are.)
            SELECT r.incarnation, t.path || r.incarnation FROM tree AS t CROSS JOIN LATERAL (
                SELECT incarnation FROM @schema@.runs WHERE parent = t.incarnation OFFSET 0
            ) AS r
            WHERE r.incarnation <> ALL (t.path)
        )
        SELECT incarnation FROM tree ORDER BY path
    );
END $$;

-- ---------------------------------------------------------------- messages

-- Put a message into a live run's inbox, and wake the run if it listens (as everybody does to control): now, or since longer.
-- Returns its number.
CREATE FUNCTION @schema@.put_1(
    _run bigint, _kind text, _name text, _token text, _payload bytea, _failed boolean, _at bigint, _arrival bigint, _now bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _number bigint;
BEGIN
    UPDATE @schema@.runs SET inbox = inbox + 1, updated_at = _now,
        wake_at = CASE
            WHEN status = 2 AND (listening OR _kind = 'cancel') THEN least(coalesce(wake_at, _now), _now) ELSE wake_at
        END
    WHERE incarnation = _run RETURNING inbox INTO _number;
    INSERT INTO @schema@.messages VALUES (_run, _number, _kind, _name, _token, _payload, _failed, _at, _arrival);
    RETURN _number;
END $$;

-- What a parent hears of a child; dropped where the parent has ended or is gone.
CREATE FUNCTION @schema@.tell_1(_parent bigint, _name text, _payload bytea, _failed boolean, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM @schema@.runs WHERE incarnation = _parent AND status + 0 < 4 FOR NO KEY UPDATE;
    IF FOUND THEN
        PERFORM @schema@.put_1(_parent, 'child', _name, NULL, _payload, _failed, _now, NULL, _now);
    END IF;
END $$;

-- Serve the oldest wait for the token and return its run; or keep the message there, in its place by arrival. The name is held.
CREATE FUNCTION @schema@.give_1(
    _namespace text, _token text, _kind text, _name text, _payload bytea, _failed boolean, _at bigint, _arrival bigint,
    _now bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _place bigint;
    _run bigint;
BEGIN
    SELECT place, incarnation INTO _place, _run FROM @schema@.waits
    WHERE namespace = _namespace AND token = _token AND served IS NULL AND probe IS NULL ORDER BY place LIMIT 1;
    IF FOUND THEN
        UPDATE @schema@.waits
        SET served = @schema@.put_1(_run, _kind, _name, _token, _payload, _failed, _at, _arrival, _now) WHERE place = _place;
        RETURN _run;
    END IF;
    INSERT INTO @schema@.kept (namespace, token, arrival, kind, name, payload, failed, at)
    VALUES (_namespace, _token, _arrival, _kind, _name, _payload, _failed, _at);
    RETURN NULL;
END $$;

-- Take the oldest message kept at the token, or stand in line for the next one.
CREATE FUNCTION @schema@.wait_1(_run bigint, _namespace text, _seq bigint, _token text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _place bigint;
    _letter @schema@.kept;
BEGIN
    PERFORM @schema@.hold_name_1(@schema@.name_1(_namespace, _token));
    SELECT * INTO _letter FROM @schema@.kept WHERE namespace = _namespace AND token = _token ORDER BY arrival LIMIT 1;
    INSERT INTO @schema@.waits (namespace, token, incarnation, seq) VALUES (_namespace, _token, _run, _seq)
    RETURNING place INTO _place;
    IF _letter.arrival IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM @schema@.kept WHERE namespace = _namespace AND token = _token AND arrival = _letter.arrival;
    UPDATE @schema@.waits SET served = @schema@.put_1(
        _run, _letter.kind, _letter.name, _token, _letter.payload, _letter.failed, _letter.at, _letter.arrival, _now
    ) WHERE place = _place;
END $$;

-- Take waits (those of operations `_seqs`, or all) out of their lines; give back what came for them and lies unread.
CREATE FUNCTION @schema@.end_waits_1(_runs bigint[], _seqs bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _held integer;
    _back record;
BEGIN
    FOR _held IN
        SELECT DISTINCT @schema@.name_1(namespace, token) AS name FROM @schema@.waits
        WHERE incarnation = ANY (_runs) AND (_seqs IS NULL OR seq = ANY (_seqs)) ORDER BY name
    LOOP
        PERFORM @schema@.hold_name_1(_held);
    END LOOP;
    IF _held IS NULL THEN
        RETURN;
    END IF;
    FOR _back IN
        WITH gone AS (
            DELETE FROM @schema@.waits WHERE incarnation = ANY (_runs) AND (_seqs IS NULL OR seq = ANY (_seqs))
            RETURNING namespace, incarnation, served, back, back_until
        ), back AS (
            DELETE FROM @schema@.messages AS m USING gone AS g WHERE m.incarnation = g.incarnation AND m.number = g.served
            RETURNING g.namespace, g.back, g.back_until, m.token, m.kind, m.name, m.payload, m.failed, m.at, m.arrival
        )
        SELECT * FROM back ORDER BY arrival
    LOOP
        -- Only now, so that nothing is given to a wait that ends with it.
        IF _back.kind <> 'event' THEN
            PERFORM @schema@.give_1(
                _back.namespace, _back.token, _back.kind, _back.name, _back.payload, _back.failed, _back.at, _back.arrival, _now
            );
        ELSIF _back.back IS NOT NULL THEN
            PERFORM @schema@.offer_1(
                _back.namespace, _back.name, _back.payload, _back.back, _back.at, _back.arrival, _back.back_until, _now
            );
        END IF;
    END LOOP;
END $$;

-- One message from outside or from a turn, once for each id of its own. `_target`: whose inbox it went to, or who has ended.
CREATE FUNCTION @schema@.send_1(_message jsonb, _now bigint, OUT _answer text, OUT _target bigint) LANGUAGE plpgsql AS $$
DECLARE
    _namespace text := _message ->> 'namespace';
    _token text := _message ->> 'token';
    _kind text := _message ->> 'kind';
    _name text := _message ->> 'name';
    _payload bytea := decode(_message ->> 'payload', 'base64');
    _failed boolean := (_message ->> 'failed')::boolean;
    _dedup text := _message ->> 'dedup';
    _addressed bigint;
    _run @schema@.runs;
BEGIN
    _answer := 'applied';
    IF _message ->> 'run_id' IS NULL THEN
        IF _token IS NULL THEN
            RAISE data_exception USING MESSAGE = 'a message names neither a run nor a token';
        END IF;
        PERFORM @schema@.hold_name_1(@schema@.name_1(_namespace, _token));
        IF _dedup IS NOT NULL THEN
            INSERT INTO @schema@.token_deliveries VALUES (_namespace, _token, _dedup) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                RETURN;
            END IF;
        END IF;
        _target := @schema@.give_1(
            _namespace, _token, _kind, _name, _payload, _failed, _now, nextval('@schema@.arrivals'), _now
        );
        RETURN;
    END IF;
    SELECT incarnation INTO _addressed FROM @schema@.runs WHERE id = _message ->> 'run_id';
    IF NOT FOUND OR _addressed <> (_message ->> 'incarnation')::bigint THEN
        _answer := 'missing';
        RETURN;
    END IF;
    _run := @schema@.hold_last_1(_addressed);
    IF _dedup IS NOT NULL THEN
        PERFORM 1 FROM @schema@.deliveries WHERE incarnation = _addressed AND dedup = _dedup;
        IF FOUND THEN
            RETURN;  -- Also where the run has ended since: this very message did arrive.
        END IF;
    END IF;
    IF _run.incarnation IS NULL THEN
        _answer := 'missing';
        RETURN;
    END IF;
    _target := _run.incarnation;
    IF _run.status >= 4 THEN
        _answer := 'ended';
        RETURN;
    END IF;
    IF _dedup IS NOT NULL THEN
        INSERT INTO @schema@.deliveries VALUES (_addressed, _dedup);
    END IF;
    PERFORM @schema@.put_1(_target, _kind, _name, _token, _payload, _failed, _now, NULL, _now);
END $$;

-- ---------------------------------------------------------------- new runs

-- The row of a run that begins now, or at `start_at` if that lies ahead. NULL: its id is taken.
CREATE FUNCTION @schema@.begin_1(
    _new jsonb, _parent_id text, _parent bigint, _parent_seq bigint, _awaited_as text, _facets jsonb, _now bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _due bigint := greatest(_now, (_new ->> 'start_at')::bigint);
    _priority bigint := (_new ->> 'priority')::bigint;
    _timeout bigint := (_new ->> 'timeout')::bigint;
    _tags text[] := ARRAY(SELECT jsonb_array_elements_text(_new -> 'tags'));
    _run bigint;
BEGIN
    INSERT INTO @schema@.runs (
        id, incarnation, workflow, version, namespace, status, input, seed, epoch, n, inbox, seen, wake_at, listening,
        deadline, timeout, priority, tags, attributes, origin, parent_id, parent, parent_seq, awaited_as, depth, format,
        recoveries, created_at, updated_at, urgency, definition, carrier, gate
    ) VALUES (
        _new ->> 'id', nextval('@schema@.incarnations'), _new ->> 'workflow', _new ->> 'version', _new ->> 'namespace',
        CASE WHEN _due > _now THEN 2 ELSE 0 END, decode(_new ->> 'input', 'base64'), (_new ->> 'seed')::bigint, 0, 0, 0, 0,
        _due, false, _due + _timeout, _timeout, _priority, nullif(_tags, '{}'), decode(_new ->> 'attributes', 'base64'),
        _new ->> 'origin', _parent_id, _parent, _parent_seq, _awaited_as, (_new ->> 'depth')::bigint,
        (_new ->> 'format')::bigint, 0, _now, _now, coalesce(_priority, 0),
        @schema@.definition_1(_new ->> 'workflow', _new ->> 'version'), decode(_new ->> 'carrier', 'base64'),
        CASE WHEN jsonb_typeof(_new -> 'gate') = 'object' THEN (_new -> 'gate')::text END
    ) ON CONFLICT (id) DO NOTHING RETURNING incarnation INTO _run;
    IF _run IS NOT NULL AND cardinality(_tags) > 0 THEN
        INSERT INTO @schema@.tags SELECT DISTINCT unnest(_tags), _run;
    END IF;
    IF _run IS NOT NULL AND jsonb_typeof(_facets) = 'array' THEN
        INSERT INTO @schema@.attributes
        SELECT f.pair ->> 0, f.pair ->> 1, _run FROM jsonb_array_elements(_facets) AS f (pair);
    END IF;
    RETURN _run;
END $$;

-- ---------------------------------------------------------------- families

-- Let the parent hear of the child's end: in its time, or at once where there is nothing to wait for. `_excuses`: what it
-- hears of a child that cannot be waited for.
CREATE FUNCTION @schema@.join_1(_parent bigint, _child_id text, _again boolean, _excuses jsonb, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _child @schema@.runs;
    _last @schema@.runs;
    _excuse text;
BEGIN
    SELECT * INTO _child FROM @schema@.runs WHERE id = _child_id;
    IF _child.parent = _parent THEN
        _last := @schema@.hold_last_1(_child.incarnation);
    END IF;
    IF _last.incarnation IS NULL THEN
        -- Of another parent, not there, or gone this very moment.
        _excuse := _excuses -> _child_id ->> CASE
            WHEN _child.incarnation IS NULL OR _child.parent = _parent THEN 'missing' ELSE 'taken'
        END;
        PERFORM @schema@.tell_1(_parent, _child_id, decode(_excuse, 'base64'), true, _now);
    ELSIF _last.status < 4 THEN
        UPDATE @schema@.runs SET awaited_as = _child_id, updated_at = _now WHERE incarnation = _last.incarnation;
    ELSIF _last.status = 4 THEN
        PERFORM @schema@.tell_1(_parent, _child_id, _last.output, false, _now);
    ELSIF NOT (_again AND _last.status IN (5, 7)) THEN
        PERFORM @schema@.tell_1(_parent, _child_id, _last.error, true, _now);
    END IF;
END $$;

-- A new child, or one that is there already: then it is joined.
CREATE FUNCTION @schema@.start_child_1(
    _parent_id text, _parent bigint, _child jsonb, _excuses jsonb, _facets jsonb, _now bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _new jsonb := _child -> 'run';
    _there bigint;
    _of bigint;
BEGIN
    SELECT incarnation, parent INTO _there, _of FROM @schema@.runs WHERE id = _new ->> 'id';
    IF NOT FOUND THEN
        _there := @schema@.begin_1(
            _new, _parent_id, _parent, (_child ->> 'seq')::bigint, _new ->> 'awaited_as', _facets, _now
        );
        IF _there IS NOT NULL THEN
            IF jsonb_typeof(_new -> 'gate') = 'object' THEN
                PERFORM @schema@.ask_for_new_1(_there, _new ->> 'namespace', _new -> 'gate', _now);
            END IF;
            RETURN;
        END IF;
        SELECT parent INTO _of FROM @schema@.runs WHERE id = _new ->> 'id';  -- It came up this very moment.
    END IF;
    IF _of IS DISTINCT FROM _parent OR _new ->> 'awaited_as' IS NOT NULL THEN
        PERFORM @schema@.join_1(_parent, _new ->> 'id', (_child ->> 'again')::boolean, _excuses, _now);
    END IF;
END $$;

-- After the rows of runs that end together were written: give back what came to their tokens, tell the parents that wait.
CREATE FUNCTION @schema@.close_1(_ended bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _run record;
BEGIN
    PERFORM @schema@.end_waits_1(_ended, NULL, _now);
    FOR _run IN
        SELECT r.parent, r.awaited_as, r.status, r.output, r.error
        FROM unnest(_ended) WITH ORDINALITY AS e (incarnation, place) JOIN @schema@.runs AS r USING (incarnation)
        WHERE r.awaited_as IS NOT NULL AND r.parent + 0 IS NOT NULL ORDER BY e.place
    LOOP
        PERFORM @schema@.tell_1(
            _run.parent, _run.awaited_as, CASE WHEN _run.status = 4 THEN _run.output ELSE _run.error END, _run.status <> 4, _now
        );
    END LOOP;
    PERFORM @schema@.give_back_1(_ended, NULL, _now);
END $$;

-- Locks what lives of a tree, level by level until nothing new was born; returns it, the upper ones first.
CREATE FUNCTION @schema@.hold_tree_1(_root bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _tree bigint[] := @schema@.tree_1(_root);
    _again bigint[];
BEGIN
    LOOP
        PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_tree) AND status + 0 < 4 ORDER BY incarnation FOR NO KEY UPDATE;
        _again := @schema@.tree_1(_root);
        EXIT WHEN _again = _tree;
        _tree := _again;
    END LOOP;
    RETURN ARRAY(
        SELECT t.incarnation FROM unnest(_tree) WITH ORDINALITY AS t (incarnation, place)
        JOIN @schema@.runs AS r USING (incarnation) WHERE r.status + 0 < 4 ORDER BY t.place
    );
END $$;

-- Write the rows only; `close_1` does the rest.
CREATE FUNCTION @schema@.mark_cancelled_1(_runs bigint[], _error bytea, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @schema@.runs SET status = 6, owner = NULL, epoch = epoch + 1, wake_at = NULL, listening = false, output = NULL,
        error = _error, fingerprint = NULL, updated_at = _now, ended_at = _now
    WHERE incarnation = ANY (_runs);
END $$;

-- Cancel a run and everything below it that lives; returns the runs that changed, the upper ones first.
CREATE FUNCTION @schema@.cancel_tree_1(_root bigint, _error bytea, _now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _live bigint[] := @schema@.hold_tree_1(_root);
BEGIN
    PERFORM @schema@.mark_cancelled_1(_live, _error, _now);
    PERFORM @schema@.close_1(_live, _now);
    RETURN _live;
END $$;

-- ---------------------------------------------------------------- turns

-- The next link of a chain: with the old one's place in its family, and its unread messages.
CREATE FUNCTION @schema@.continue_1(_old @schema@.runs, _new jsonb, _facets jsonb, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _next bigint;
    _letter @schema@.messages;
BEGIN
    _next := @schema@.begin_1(
        _new, _old.parent_id, _old.parent, _old.parent_seq,
        (SELECT awaited_as FROM @schema@.runs WHERE incarnation = _old.incarnation), _facets, _now
    );
    IF _next IS NULL THEN
        RAISE data_exception USING MESSAGE =
            format('the run cannot continue as %s: another run has that id', quote_literal(_new ->> 'id'));
    END IF;
    UPDATE @schema@.runs SET continued_to = _new ->> 'id', successor = _next WHERE incarnation = _old.incarnation;
    IF _old.paused_at IS NOT NULL THEN
        UPDATE @schema@.runs SET paused_at = _old.paused_at WHERE incarnation = _next;
    END IF;
    FOR _letter IN
        SELECT * FROM @schema@.messages
        WHERE incarnation = _old.incarnation AND kind <> 'child' AND NOT (kind = 'grant' AND name <> '-1') ORDER BY number
    LOOP
        PERFORM @schema@.put_1(
            _next, _letter.kind, _letter.name, _letter.token, _letter.payload, _letter.failed, _letter.at, _letter.arrival, _now
        );
    END LOOP;
    DELETE FROM @schema@.messages
    WHERE incarnation = _old.incarnation AND kind <> 'child' AND NOT (kind = 'grant' AND name <> '-1');
    PERFORM @schema@.hand_over_1(_old.incarnation, _next, _now);
END $$;

-- Apply a turn of the one who holds the run (its row is locked): 'applied', 'moved' or 'refused'.
-- `_aside`: what the caller worked out for it: excuses, facets, the error of cancelled children, a reason not to store it.
CREATE FUNCTION @schema@.advance_1(_run @schema@.runs, _turn jsonb, _aside jsonb, _now bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _me bigint := _run.incarnation;
    _status smallint := @schema@.status_1(_turn ->> 'status');
    _seen bigint := (_turn ->> 'seen')::bigint;
    _n bigint := (_turn ->> 'n')::bigint;
    _entries jsonb := _turn -> 'entries';
    _consumed bigint[] := ARRAY(SELECT jsonb_array_elements_text(_turn -> 'consumed')::bigint);
    _unwaits bigint[] := ARRAY(SELECT jsonb_array_elements_text(_turn -> 'unwaits')::bigint);
    _output bytea := decode(_turn ->> 'output', 'base64');
    _error bytea := decode(_turn ->> 'error', 'base64');
    _wake_at bigint;
    _below bigint[] := '{}';
    _each jsonb;
    _place bigint;
    _child @schema@.runs;
BEGIN
    IF _status >= 4 THEN
        PERFORM 1 FROM @schema@.messages
        WHERE incarnation = _me AND number > _seen AND number <> ALL (_consumed)
            AND (kind = 'cancel' OR (kind = 'update' AND _turn ->> 'successor' IS NULL));
        IF FOUND THEN
            RETURN 'refused';
        END IF;
    END IF;
    IF _aside ->> 'unstorable' IS NOT NULL THEN
        RAISE data_exception USING MESSAGE = _aside ->> 'unstorable';
    END IF;
    _wake_at := (_turn ->> 'wake_at')::bigint;

    -- What concerns the run alone: history, inbox, values.
    INSERT INTO @schema@.history
    SELECT _me, _n + e.place - 1, e.event, e.seq, e.op, e.name, decode(e.payload, 'base64'), e.at, e.due, e.began, _n
    FROM ROWS FROM (
        jsonb_to_recordset(_entries)
        AS (event smallint, seq bigint, op text, name text, payload text, at bigint, due bigint, began bigint)
    ) WITH ORDINALITY AS e (event, seq, op, name, payload, at, due, began, place);
    UPDATE @schema@.runs SET n = _n + jsonb_array_length(_entries), seen = _seen,
        recoveries = CASE WHEN (_turn ->> 'progress')::boolean THEN 0 ELSE recoveries END,
        started_at = coalesce(started_at, (_turn ->> 'started_at')::bigint), updated_at = _now, output = NULL, error = NULL,
        fingerprint = NULL
    WHERE incarnation = _me;
    IF cardinality(_consumed) > 0 THEN
        DELETE FROM @schema@.messages WHERE incarnation = _me AND number = ANY (_consumed);
    END IF;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'values') LOOP
        INSERT INTO @schema@.run_values VALUES (_me, _each ->> 0, decode(_each ->> 1, 'base64'))
        ON CONFLICT (incarnation, key) DO UPDATE SET payload = excluded.payload;
    END LOOP;
    IF _turn ->> 'attributes' IS NOT NULL THEN
        UPDATE @schema@.runs SET attributes = decode(_turn ->> 'attributes', 'base64') WHERE incarnation = _me;
        DELETE FROM @schema@.attributes WHERE incarnation = _me;
        INSERT INTO @schema@.attributes
        SELECT f.pair ->> 0, f.pair ->> 1, _me FROM jsonb_array_elements(_aside #> '{facets,own}') AS f (pair);
    END IF;
    IF jsonb_array_length(_turn -> 'chunks') > 0 THEN
        PERFORM @schema@.chunks_1(_me, (_turn ->> 'epoch')::bigint, _turn -> 'chunks', _now);
    END IF;

    -- What concerns others: tokens, children, messages.
    IF cardinality(_unwaits) > 0 THEN
        PERFORM @schema@.end_waits_1(ARRAY[_me], _unwaits, _now);
    END IF;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'waits') LOOP
        PERFORM @schema@.wait_1(_me, _run.namespace, (_each ->> 'seq')::bigint, _each ->> 'token', _now);
    END LOOP;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'listens') LOOP
        PERFORM @schema@.listen_1(_me, _run.namespace, _each, _now);
    END LOOP;
    FOR _each, _place IN SELECT * FROM jsonb_array_elements(_turn -> 'children') WITH ORDINALITY LOOP
        PERFORM @schema@.start_child_1(
            _run.id, _me, _each, _aside -> 'excuses', _aside #> ARRAY['facets', 'children', (_place - 1)::text], _now
        );
    END LOOP;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'joins') LOOP
        PERFORM @schema@.join_1(_me, _each ->> 'child_id', (_each ->> 'again')::boolean, _aside -> 'excuses', _now);
    END LOOP;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'cancels') LOOP
        SELECT * INTO _child FROM @schema@.runs WHERE id = _each #>> '{}' AND parent = _me;
        IF FOUND THEN
            _child := @schema@.hold_last_1(_child.incarnation);
            PERFORM @schema@.cancel_tree_1(_child.incarnation, decode(_aside ->> 'cancelled', 'base64'), _now);
        END IF;
    END LOOP;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'sends') LOOP
        PERFORM @schema@.send_1(_each, _now);
    END LOOP;
    IF jsonb_array_length(_turn -> 'releases') > 0 THEN
        PERFORM @schema@.give_back_1(
            ARRAY[_me], ARRAY(SELECT jsonb_array_elements_text(_turn -> 'releases')::bigint), _now
        );
    END IF;
    FOR _each IN SELECT jsonb_array_elements(_turn -> 'asks') LOOP
        PERFORM @schema@.ask_1(_me, _run.namespace, _each, _now);
    END LOOP;

    IF _status = 1 THEN
        RETURN 'applied';
    END IF;
    IF _status < 4 THEN
        IF _status = 2 THEN
            PERFORM 1 FROM @schema@.messages WHERE incarnation = _me AND number > _seen;
            IF FOUND THEN
                RETURN 'moved';
            END IF;
        END IF;
        UPDATE @schema@.runs SET status = _status, owner = NULL, wake_at = _wake_at,
            listening = (_turn ->> 'listening')::boolean, output = _output, error = _error,
            fingerprint = _turn ->> 'fingerprint'
        WHERE incarnation = _me;
        RETURN 'applied';
    END IF;
    IF _status IN (6, 7) AND _turn ->> 'successor' IS NULL AND NOT (_turn ->> 'spares')::boolean THEN
        _below := array_remove(@schema@.hold_tree_1(_me), _me);
    END IF;
    UPDATE @schema@.runs SET status = _status, owner = NULL, wake_at = NULL, listening = false, output = _output,
        error = _error, ended_at = _now
    WHERE incarnation = _me;
    IF _turn ->> 'successor' IS NOT NULL THEN
        PERFORM @schema@.end_waits_1(ARRAY[_me], NULL, _now);
        PERFORM @schema@.continue_1(_run, _turn -> 'successor', _aside #> '{facets,successor}', _now);
    ELSE
        PERFORM @schema@.mark_cancelled_1(_below, _error, _now);
        PERFORM @schema@.close_1(_me || _below, _now);
    END IF;
    RETURN 'applied';
END $$;

-- ---------------------------------------------------------------- locks of a batch

-- Lock what a batch touches, and what hangs on it, in the order of all verbs. What is missed here is locked when it is met.
--   _mine     the runs whose turns are committed; _ending: those of them that end, or end waits; _felling: that take all
--             below them along
--   _ids      ids of runs that are sent to, joined, started, requeued; _felled: that are cancelled or deleted
--   _spaces, _tokens   where messages go by token;   _waiting, _awaited   runs (0: new) and the tokens they begin to wait for
--   _events   what is published: namespaces, names (as of tokens) and facets
CREATE FUNCTION @schema@.lock_1(
    _mine bigint[], _ending bigint[], _felling bigint[], _ids text[], _felled text[], _spaces text[], _tokens text[],
    _waiting bigint[], _awaited text[], _events jsonb
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _named bigint[] := '{}';
    _trees bigint[] := '{}';
    _names integer[] := '{}';
    _all bigint[];
    _root bigint;
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF cardinality(_ids) + cardinality(_felled) > 0 THEN
        WITH RECURSIVE links (incarnation, felled) AS (
            SELECT incarnation, id = ANY (_felled) FROM @schema@.runs WHERE id = ANY (_ids || _felled)
            UNION
            SELECT s.incarnation, l.felled FROM links AS l CROSS JOIN LATERAL (
                SELECT n.incarnation FROM @schema@.runs AS r JOIN @schema@.runs AS n ON n.incarnation = r.successor
                WHERE r.incarnation = l.incarnation OFFSET 0
            ) AS s
        )
        SELECT array_agg(incarnation), coalesce(array_agg(incarnation) FILTER (WHERE felled), '{}')
        INTO _named, _trees FROM links;
    END IF;
    FOREACH _root IN ARRAY _trees || _felling LOOP
        _trees := _trees || @schema@.tree_1(_root);
    END LOOP;
    _all := _mine || _named || _trees;
    _ending := _ending || _trees;
    IF cardinality(_ending) > 0 THEN
        _all := _all || ARRAY(SELECT parent FROM @schema@.runs WHERE incarnation = ANY (_ending) AND parent + 0 IS NOT NULL);
    END IF;
    _names := ARRAY(
        SELECT @schema@.name_1(t.space, t.token) FROM unnest(_spaces, _tokens) AS t (space, token)
        UNION
        SELECT @schema@.name_1(r.namespace, w.token) FROM unnest(_waiting, _awaited) AS w (incarnation, token)
        JOIN @schema@.runs AS r USING (incarnation)
        UNION
        SELECT @schema@.name_1(e.event ->> 0, e.event ->> 1) FROM jsonb_array_elements(_events) AS e (event)
        UNION
        SELECT @schema@.name_1(w.namespace, w.token) FROM @schema@.waits AS w WHERE w.incarnation = ANY (_ending)
        UNION
        SELECT @schema@.gate_name_1(g.namespace, g.name, g.key)
        FROM @schema@.tickets AS t JOIN @schema@.gates AS g ON g.id = t.gate WHERE t.incarnation = ANY (_ending)
        ORDER BY 1
    );
    PERFORM @schema@.hold_names_1(_names);
    IF cardinality(_ending) > 0 THEN
        -- Who is likely to be next where a slot is given back.
        _all := _all || ARRAY(
            SELECT n.incarnation FROM (
                SELECT t.gate, count(*) AS slots FROM @schema@.tickets AS t WHERE t.incarnation = ANY (_ending) GROUP BY t.gate
            ) AS g CROSS JOIN LATERAL (
                SELECT f.incarnation FROM @schema@.lanes AS l CROSS JOIN LATERAL (
                    SELECT w.incarnation FROM @schema@.tickets AS w
                    WHERE w.gate = l.gate AND w.urgency = l.urgency AND w.lane = l.lane AND NOT w.held
                    ORDER BY w.rank LIMIT g.slots
                ) AS f
                WHERE l.gate = g.gate ORDER BY l.urgency DESC, l.served, l.head LIMIT g.slots
            ) AS n
        );
    END IF;
    IF cardinality(_tokens) > 0 THEN
        _all := _all || ARRAY(
            SELECT w.incarnation FROM (SELECT DISTINCT * FROM unnest(_spaces, _tokens)) AS t (space, token)
            CROSS JOIN LATERAL (
                SELECT incarnation FROM @schema@.waits
                WHERE namespace = t.space AND token = t.token AND served IS NULL AND probe IS NULL
                ORDER BY place LIMIT cardinality(_tokens)
            ) AS w
        );
    END IF;
    IF jsonb_array_length(_events) > 0 THEN
        _all := _all || ARRAY(
            SELECT w.incarnation FROM jsonb_array_elements(_events) AS e (event) CROSS JOIN LATERAL unnest(
                @schema@.fitting_1(
                    e.event ->> 0, e.event ->> 1, ARRAY(SELECT jsonb_array_elements_text(e.event -> 2))
                )
            ) AS f (place) JOIN @schema@.waits AS w ON w.place = f.place
        );
    END IF;
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_all) ORDER BY incarnation FOR NO KEY UPDATE;
    -- From here on nothing is waited for in order.
    PERFORM set_config('lock_timeout', '100ms', true);
END $$;

-- ---------------------------------------------------------------- the batch

-- Apply writes in order, in one transaction; each as [kind, write, aside]. For each there is a row with its answer, followed by
-- rows with the runs or messages that belong to the answer (`answer` is NULL there). Data that cannot be stored raises an
-- error of class 22, 23 or 54, and nothing is applied. The other parameters are those of `lock_1`.
CREATE FUNCTION @schema@.write_1(
    _at bigint, _writes jsonb, _mine bigint[], _ending bigint[], _felling bigint[], _ids text[], _felled text[],
    _spaces text[], _tokens text[], _waiting bigint[], _awaited text[], _events jsonb
)
RETURNS TABLE (place integer, answer text, key_id text, key_incarnation bigint, run @schema@.runs, message @schema@.messages)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    _now bigint;
    _item jsonb;
    _kind text;
    _write jsonb;
    _aside jsonb;
    _run @schema@.runs;
    _turn jsonb;
    _sent record;
    _late bigint;
    _changed bigint[];
    _told bigint[];
    _links bigint[];
    _link bigint;
    _upto bigint;
    _gated boolean;
    _waiting_runs bigint;
BEGIN
    PERFORM @schema@.lock_1(_mine, _ending, _felling, _ids, _felled, _spaces, _tokens, _waiting, _awaited, _events);
    _now := coalesce(_at, @schema@.clock_1());
    place := -1;
    FOR _item IN SELECT jsonb_array_elements(_writes) LOOP
        place := place + 1;
        _kind := _item ->> 0;
        _write := _item -> 1;
        _aside := _item -> 2;
        key_id := NULL;
        key_incarnation := NULL;
        run := NULL;
        message := NULL;
        _changed := NULL;
        _turn := NULL;
        _upto := NULL;
        _waiting_runs := NULL;

        IF _kind = 'turn' THEN
            SELECT * INTO _run FROM @schema@.runs
            WHERE incarnation = (_write #>> '{run,incarnation}')::bigint FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                answer := 'fenced';
            ELSIF _run.status <> 1 OR _run.owner IS DISTINCT FROM _write ->> 'owner'
                OR _run.epoch::text <> _write ->> 'epoch' OR _run.n::text <> _write ->> 'n'
            THEN
                answer := 'fenced';
                run := _run;
            ELSE
                answer := @schema@.advance_1(_run, _write, _aside, _now);
                key_id := _run.id;
                key_incarnation := _run.incarnation;
            END IF;

        ELSIF _kind = 'append' THEN
            SELECT * INTO _run FROM @schema@.runs
            WHERE incarnation = (_write #>> '{run,incarnation}')::bigint FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                answer := 'fenced';
            ELSIF _run.status <> 1 OR _run.owner IS DISTINCT FROM _write ->> 'owner'
                OR _run.epoch <> (_write ->> 'epoch')::bigint
            THEN
                answer := 'fenced';
                run := _run;
            ELSE
                PERFORM @schema@.chunks_1(_run.incarnation, _run.epoch, _write -> 'chunks', _now);
                answer := 'applied';
                key_id := _run.id;
                key_incarnation := _run.incarnation;
            END IF;

        ELSIF _kind = 'create' THEN
            SELECT * INTO _run FROM @schema@.runs WHERE id = _write #>> '{run,id}';
            answer := 'exists';
            _gated := jsonb_typeof(_write #> '{run,gate}') = 'object';
            IF NOT FOUND THEN
                IF _aside ->> 'unstorable' IS NOT NULL THEN
                    RAISE data_exception USING MESSAGE = _aside ->> 'unstorable';
                END IF;
                IF _gated AND jsonb_typeof(_write -> 'turn') <> 'object' AND coalesce((_write #>> '{run,start_at}')::bigint, 0) <= _now THEN
                    _waiting_runs := @schema@.full_1(_write #>> '{run,namespace}', _write #> '{run,gate}', _now);
                END IF;
            END IF;
            IF _waiting_runs IS NOT NULL THEN
                answer := 'full';
                key_incarnation := _waiting_runs;
            ELSIF _run.incarnation IS NULL THEN
                key_incarnation := @schema@.begin_1(
                    _write -> 'run', _write #>> '{run,parent,id}', (_write #>> '{run,parent,incarnation}')::bigint,
                    (_write #>> '{run,parent,seq}')::bigint, _write #>> '{run,awaited_as}', _aside #> '{facets,run}', _now
                );
                IF key_incarnation IS NOT NULL THEN
                    key_id := _write #>> '{run,id}';
                    answer := 'applied';
                    _turn := _write -> 'turn';
                    IF _gated AND jsonb_typeof(_turn) = 'object' THEN
                        UPDATE @schema@.runs SET gate = (_write #> '{run,gate}')::text WHERE incarnation = key_incarnation;
                    ELSIF _gated THEN
                        PERFORM @schema@.ask_for_new_1(
                            key_incarnation, _write #>> '{run,namespace}', _write #> '{run,gate}', _now
                        );
                    END IF;
                    IF jsonb_typeof(_turn) = 'object' THEN
                        -- Its first turn was made before it was created: held by that turn's owner.
                        UPDATE @schema@.runs SET status = 1, owner = _turn ->> 'owner', epoch = 1,
                            wake_at = CASE WHEN _turn ->> 'status' = 'running' THEN (_turn ->> 'wake_at')::bigint
                                ELSE _now + (_write ->> 'lease')::bigint END
                        WHERE incarnation = key_incarnation RETURNING * INTO _run;
                        answer := @schema@.advance_1(_run, _turn, _aside, _now);
                        -- What follows came after the turn.
                        SELECT inbox INTO _upto FROM @schema@.runs WHERE incarnation = key_incarnation;
                    END IF;
                END IF;
            END IF;
            _late := NULL;
            FOR _item IN SELECT jsonb_array_elements(_write -> 'messages') WHERE answer <> 'full' LOOP
                SELECT * INTO _sent FROM @schema@.send_1(_item, _now);
                IF _late IS NULL AND _sent._answer = 'ended' THEN
                    _late := _sent._target;
                END IF;
            END LOOP;
            IF answer = 'exists' THEN
                IF _late IS NOT NULL THEN
                    answer := 'ended';
                    SELECT * INTO run FROM @schema@.runs WHERE incarnation = _late;
                ELSE
                    SELECT * INTO run FROM @schema@.runs WHERE id = _write #>> '{run,id}';
                    IF NOT FOUND THEN
                        answer := 'missing';
                    END IF;
                END IF;
                key_id := _write #>> '{run,id}';
            END IF;

        ELSIF _kind = 'send' THEN
            SELECT * INTO _sent FROM @schema@.send_1(_write -> 'message', _now);
            answer := _sent._answer;
            SELECT * INTO _run FROM @schema@.runs WHERE incarnation = _sent._target;
            IF answer = 'ended' THEN
                run := _run;
            ELSIF answer = 'missing' THEN
                key_id := _write #>> '{message,run_id}';
            ELSE
                key_id := _run.id;
                key_incarnation := _run.incarnation;
            END IF;

        ELSIF _kind = 'publish' THEN
            SELECT p._reached, p._runs INTO key_incarnation, _told FROM @schema@.publish_1(_write, _aside -> 'facets', _now) AS p;
            answer := 'published';
        ELSIF _kind = 'configure' THEN
            answer := 'applied';
            PERFORM @schema@.configure_1(_write ->> 'name', _write -> 'rules', _write ->> 'namespace', _now);

        ELSE
            key_id := _write ->> 'run_id';
            SELECT * INTO _run FROM @schema@.runs WHERE id = _write ->> 'run_id'
            AND incarnation = coalesce((_write ->> 'incarnation')::bigint, incarnation) FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                answer := 'missing';
            ELSIF _kind = 'cancel' THEN
                _run := @schema@.hold_last_1(_run.incarnation);
                IF _run.incarnation IS NULL THEN
                    answer := 'missing';
                ELSIF _run.status >= 4 THEN
                    answer := 'ended';
                    run := _run;
                ELSE
                    answer := 'changed';
                    _changed := @schema@.cancel_tree_1(_run.incarnation, decode(_write ->> 'error', 'base64'), _now);
                END IF;
            ELSIF _kind = 'steer' THEN
                _run := @schema@.hold_last_1(_run.incarnation);
                IF _run.incarnation IS NULL THEN
                    answer := 'missing';
                ELSIF _run.status >= 4 THEN
                    answer := 'ended';
                    run := _run;
                ELSE
                    answer := 'changed';
                    _changed := @schema@.steer_1(_run.incarnation, _write ->> 'way', _now);
                END IF;
            ELSIF _kind = 'requeue' THEN
                answer := 'changed';
                _changed := @schema@.requeue_1(_run.incarnation, _now);
            ELSE
                answer := 'changed';
                _links := @schema@.chain_1(_run.incarnation);
                FOREACH _link IN ARRAY _links LOOP
                    PERFORM @schema@.cancel_tree_1(_link, decode(_write ->> 'error', 'base64'), _now);
                END LOOP;
                _changed := '{}';
                FOREACH _link IN ARRAY _links LOOP
                    _changed := _changed || @schema@.tree_1(_link);
                END LOOP;
            END IF;
        END IF;

        RETURN NEXT;
        IF answer = 'moved' OR answer = 'refused' THEN
            RETURN QUERY SELECT place, NULL::text, NULL::text, NULL::bigint, NULL::@schema@.runs, m
            FROM @schema@.messages AS m
            WHERE m.incarnation = key_incarnation AND m.number > (coalesce(_turn, _write) ->> 'seen')::bigint
            AND (_upto IS NULL OR m.number <= _upto)
            AND (answer = 'moved' OR NOT coalesce(_turn, _write) -> 'consumed' @> to_jsonb(m.number)) ORDER BY m.number;
        END IF;
        IF _kind = 'publish' THEN
            RETURN QUERY SELECT place, NULL::text, r.id, r.incarnation, NULL::@schema@.runs, NULL::@schema@.messages
            FROM @schema@.runs AS r WHERE r.incarnation = ANY (_told);
        END IF;
        IF _changed IS NOT NULL THEN
            RETURN QUERY SELECT place, NULL::text, NULL::text, NULL::bigint, r, NULL::@schema@.messages
            FROM (SELECT u.member, min(u.line) AS line FROM unnest(_changed) WITH ORDINALITY AS u (member, line)
                GROUP BY u.member) AS c
            JOIN @schema@.runs AS r ON r.incarnation = c.member ORDER BY c.line;
            IF _kind = 'delete' THEN
                PERFORM @schema@.forget_1(_changed);
            END IF;
        END IF;
    END LOOP;
END $$;

-- Revive a failed or dead run, or have a blocked one tried again; returns it, or nothing where it is neither.
CREATE FUNCTION @schema@.requeue_1(_named bigint, _now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _run @schema@.runs;
BEGIN
    SELECT * INTO _run FROM @schema@.runs WHERE incarnation = _named FOR NO KEY UPDATE;
    IF _run.status = 3 THEN
        UPDATE @schema@.runs SET wake_at = least(coalesce(wake_at, _now), _now), updated_at = _now WHERE incarnation = _named;
        RETURN ARRAY[_named];
    END IF;
    IF _run.status IS NULL OR _run.status NOT IN (5, 7) THEN
        RETURN '{}';
    END IF;
    UPDATE @schema@.runs SET status = 0, owner = NULL, wake_at = _now, listening = false, output = NULL, error = NULL,
        deadline = _now + timeout, recoveries = 0, paused_at = NULL, updated_at = _now, ended_at = NULL, n = n + 1
    WHERE incarnation = _named;
    INSERT INTO @schema@.history (incarnation, n, event, seq, name, at, commit_n)
    VALUES (_named, _run.n, 9, -1, '', _now, _run.n);
    RETURN ARRAY[_named];
END $$;

-- Pause a live run, unpause it, or take it from its holder; returns it, or nothing where it stands so already.
CREATE FUNCTION @schema@.steer_1(_named bigint, _way text, _now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF _way = 'pause' THEN
        UPDATE @schema@.runs SET paused_at = _now, updated_at = _now WHERE incarnation = _named AND paused_at IS NULL;
    ELSIF _way = 'unpause' THEN
        UPDATE @schema@.runs SET deadline = deadline + _now - paused_at, paused_at = NULL, updated_at = _now
        WHERE incarnation = _named AND paused_at IS NOT NULL;
    ELSE
        UPDATE @schema@.runs SET status = 0, owner = NULL, epoch = epoch + 1, wake_at = _now, updated_at = _now
        WHERE incarnation = _named AND status + 0 = 1;
    END IF;
    RETURN CASE WHEN FOUND THEN ARRAY[_named] ELSE '{}' END;
END $$;

-- Remove runs that have ended, with everything that hangs on them.
CREATE FUNCTION @schema@.forget_1(_runs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) ORDER BY incarnation FOR UPDATE;
    DELETE FROM @schema@.tags AS t USING @schema@.runs AS r
    WHERE r.incarnation = ANY (_runs) AND t.incarnation = r.incarnation AND t.tag = ANY (r.tags);
    DELETE FROM @schema@.attributes WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.history WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.messages WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.deliveries WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.waits WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.run_values WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.chunks WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.transactions WHERE incarnation = ANY (_runs);
    DELETE FROM @schema@.runs WHERE incarnation = ANY (_runs);
END $$;
