-- Gates and their lines: who holds a slot, who is next, and what becomes of a slot that is given back.
--
-- A ticket that waits stands in a lane of its gate: one for each priority, in a fair gate one for each priority and fairness
-- key. A lane knows the rank of its first ticket (by arrival; negative where who came last goes first) and when its key was
-- served last. So the next in line is one seek among the lanes and one among the tickets, however long the line is.
--
-- Locks. A gate is a name like a token: whoever changes its row, its tickets or lanes holds that name before any run.

CREATE TABLE @schema@.gates (
    id bigserial PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    slots bigint,
    rate bigint,
    span bigint NOT NULL,
    lifo boolean NOT NULL,
    fair boolean NOT NULL,
    depth bigint,
    lasting boolean NOT NULL,
    stamp bigint NOT NULL,
    held bigint NOT NULL,
    waiting bigint NOT NULL,
    opened bigint NOT NULL,
    used bigint NOT NULL,
    services bigint NOT NULL,
    wake_at bigint,
    UNIQUE (namespace, name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gates_by_name ON @schema@.gates (name);
CREATE INDEX gates_due ON @schema@.gates (wake_at) WHERE wake_at IS NOT NULL;

CREATE TABLE @schema@.tickets (
    arrival bigserial PRIMARY KEY,
    gate bigint NOT NULL,
    incarnation bigint NOT NULL,
    seq bigint NOT NULL,
    held boolean NOT NULL,
    urgency bigint NOT NULL,
    fairness text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    rank bigint NOT NULL,
    since bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX tickets_by_run ON @schema@.tickets (incarnation, seq);
CREATE INDEX tickets_in_line ON @schema@.tickets (gate, urgency, lane, rank) WHERE NOT held;
CREATE INDEX tickets_held ON @schema@.tickets (gate, since) WHERE held;

-- The lanes in which somebody waits: the rank of the first, and when the fairness key was served last.
CREATE TABLE @schema@.lanes (
    gate bigint NOT NULL,
    urgency bigint NOT NULL,
    lane text COLLATE "C" NOT NULL,
    head bigint NOT NULL,
    served bigint NOT NULL,
    PRIMARY KEY (gate, urgency, lane)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lanes_next ON @schema@.lanes (gate, urgency DESC, served, head);
CREATE INDEX lanes_by_key ON @schema@.lanes (gate, lane);

-- The newest service of each fairness key, in the order of a gate's services.
CREATE TABLE @schema@.services (
    gate bigint NOT NULL,
    lane text COLLATE "C" NOT NULL,
    service bigint NOT NULL,
    PRIMARY KEY (gate, lane)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX services_by_age ON @schema@.services (gate, service);

-- The name by which a gate is held.
CREATE FUNCTION @schema@.gate_name_1(_namespace text, _name text, _key text) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT @schema@.name_1(_namespace, chr(2) || _name || chr(1) || _key)
$$;

-- ---------------------------------------------------------------- rules

-- Whether the window that was opened last is over.
CREATE FUNCTION @schema@.window_over_1(_gate @schema@.gates, _now bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT _gate.rate IS NULL OR _now >= _gate.opened + _gate.span
$$;

-- Whether one more may pass now: by the slots, and by the rate.
CREATE FUNCTION @schema@.has_slot_1(_gate @schema@.gates) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT _gate.slots IS NULL OR _gate.held < _gate.slots
$$;
CREATE FUNCTION @schema@.in_rate_1(_gate @schema@.gates, _now bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT _gate.rate IS NULL OR _gate.used < _gate.rate OR @schema@.window_over_1(_gate, _now)
$$;

-- The gate, held, by the newer of these rules and its own; it is made if there is none.
CREATE FUNCTION @schema@.declared_1(_namespace text, _name text, _key text, _rules jsonb) RETURNS @schema@.gates
LANGUAGE plpgsql AS $$
DECLARE
    _gate @schema@.gates;
    _lifo boolean := (_rules ->> 'lifo')::boolean;
    _fair boolean := (_rules ->> 'fair')::boolean;
    _reordered boolean;
BEGIN
    PERFORM @schema@.hold_name_1(@schema@.gate_name_1(_namespace, _name, _key));
    SELECT * INTO _gate FROM @schema@.gates WHERE namespace = _namespace AND name = _name AND key = _key;
    IF NOT FOUND THEN
        INSERT INTO @schema@.gates (
            namespace, name, key, slots, rate, span, lifo, fair, depth, lasting, stamp, held, waiting, opened, used, services
        ) VALUES (
            _namespace, _name, _key, (_rules ->> 'limit')::bigint, (_rules ->> 'rate')::bigint,
            (_rules ->> 'window')::bigint, _lifo, _fair, (_rules ->> 'depth')::bigint, (_rules ->> 'lasting')::boolean,
            (_rules ->> 'stamp')::bigint, 0, 0, 0, 0, 0
        ) RETURNING * INTO _gate;
        RETURN _gate;
    END IF;
    IF (_rules ->> 'stamp')::bigint > _gate.stamp THEN
        _reordered := _gate.waiting > 0 AND (_lifo, _fair) IS DISTINCT FROM (_gate.lifo, _gate.fair);
        UPDATE @schema@.gates SET slots = (_rules ->> 'limit')::bigint, rate = (_rules ->> 'rate')::bigint,
            span = (_rules ->> 'window')::bigint, lifo = _lifo, fair = _fair, depth = (_rules ->> 'depth')::bigint,
            lasting = (_rules ->> 'lasting')::boolean, stamp = (_rules ->> 'stamp')::bigint
        WHERE id = _gate.id RETURNING * INTO _gate;
        IF _reordered THEN
            -- All that wait take their places anew.
            DELETE FROM @schema@.lanes WHERE gate = _gate.id;
            UPDATE @schema@.tickets SET lane = CASE WHEN _fair THEN fairness ELSE '' END,
                rank = CASE WHEN _lifo THEN -arrival ELSE arrival END
            WHERE gate = _gate.id AND NOT held;
            INSERT INTO @schema@.lanes
            SELECT t.gate, t.urgency, t.lane, min(t.rank), coalesce(s.service, 0) FROM @schema@.tickets AS t
            LEFT JOIN @schema@.services AS s ON s.gate = t.gate AND s.lane = t.lane AND _fair
            WHERE t.gate = _gate.id AND NOT t.held GROUP BY t.gate, t.urgency, t.lane, s.service;
        END IF;
    END IF;
    RETURN _gate;
END $$;

-- ---------------------------------------------------------------- admission

-- Let a ticket through, which has left its lane; returns the gate's row as it is then, to be written by the caller.
CREATE FUNCTION @schema@.grant_1(
    _gate @schema@.gates, _arrival bigint, _run bigint, _seq bigint, _lane text, _now bigint
) RETURNS @schema@.gates LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @schema@.tickets SET held = true, since = _now WHERE arrival = _arrival;
    IF @schema@.window_over_1(_gate, _now) THEN
        _gate.opened := _now;
        _gate.used := 1;
    ELSE
        _gate.used := _gate.used + 1;
    END IF;
    _gate.held := _gate.held + 1;
    _gate.waiting := _gate.waiting - 1;
    IF _gate.fair THEN
        _gate.services := _gate.services + 1;
        INSERT INTO @schema@.services VALUES (_gate.id, _lane, _gate.services)
        ON CONFLICT (gate, lane) DO UPDATE SET service = excluded.service;
        UPDATE @schema@.lanes SET served = _gate.services WHERE gate = _gate.id AND lane = _lane;
        DELETE FROM @schema@.services AS s WHERE s.gate = _gate.id AND s.service <= _gate.services - 1000
        AND NOT EXISTS (SELECT 1 FROM @schema@.lanes AS l WHERE l.gate = s.gate AND l.lane = s.lane);
    END IF;
    IF _seq = -1 THEN
        UPDATE @schema@.runs SET deadline = _now + timeout WHERE incarnation = _run;
    END IF;
    PERFORM @schema@.put_1(_run, 'grant', _seq::text, NULL, NULL, false, _now, NULL, _now);
    RETURN _gate;
END $$;

-- A ticket of that rank has left its lane: another may be its first now, or none.
CREATE FUNCTION @schema@.left_lane_1(_of bigint, _urgent bigint, _lane text, _rank bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _first bigint;
BEGIN
    SELECT rank INTO _first FROM @schema@.tickets
    WHERE gate = _of AND urgency = _urgent AND lane = _lane AND NOT held ORDER BY rank LIMIT 1;
    IF _first IS NULL THEN
        DELETE FROM @schema@.lanes WHERE gate = _of AND urgency = _urgent AND lane = _lane;
    ELSIF _first > _rank THEN
        UPDATE @schema@.lanes SET head = _first WHERE gate = _of AND urgency = _urgent AND lane = _lane;
    END IF;
END $$;

-- Let through whom the rules let through now, and write the gate's row. The gate is held.
CREATE FUNCTION @schema@.admit_1(_gate @schema@.gates, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _next @schema@.lanes;
    _ticket @schema@.tickets;
    _admitted integer := 0;
BEGIN
    WHILE _gate.waiting > 0 AND _admitted < 200 AND @schema@.has_slot_1(_gate) AND @schema@.in_rate_1(_gate, _now) LOOP
        SELECT * INTO _next FROM @schema@.lanes WHERE gate = _gate.id ORDER BY urgency DESC, served, head LIMIT 1;
        SELECT * INTO _ticket FROM @schema@.tickets
        WHERE gate = _gate.id AND urgency = _next.urgency AND lane = _next.lane AND NOT held AND rank = _next.head;
        _gate := @schema@.grant_1(_gate, _ticket.arrival, _ticket.incarnation, _ticket.seq, _ticket.lane, _now);
        PERFORM @schema@.left_lane_1(_gate.id, _next.urgency, _next.lane, _next.head);
        _admitted := _admitted + 1;
    END LOOP;
    IF NOT _gate.lasting AND _gate.held = 0 AND _gate.waiting = 0 THEN
        IF @schema@.window_over_1(_gate, _now) THEN
            DELETE FROM @schema@.services WHERE gate = _gate.id;
            DELETE FROM @schema@.gates WHERE id = _gate.id;
            RETURN;
        END IF;
        _gate.wake_at := _gate.opened + _gate.span;
    ELSIF _gate.waiting > 0 AND @schema@.has_slot_1(_gate) THEN
        _gate.wake_at := CASE WHEN @schema@.in_rate_1(_gate, _now) THEN _now ELSE _gate.opened + _gate.span END;
    ELSE
        _gate.wake_at := NULL;
    END IF;
    UPDATE @schema@.gates SET held = _gate.held, waiting = _gate.waiting, opened = _gate.opened, used = _gate.used,
        services = _gate.services, wake_at = _gate.wake_at
    WHERE id = _gate.id;
END $$;

-- Look at the gates that somebody must look at now, though nobody releases them; those that others hold are left to them.
CREATE FUNCTION @schema@.admit_due_1(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _due bigint[] := ARRAY(
        SELECT id FROM @schema@.gates WHERE wake_at <= _now ORDER BY namespace, name, key
    );
    _each bigint;
    _gate @schema@.gates;
BEGIN
    FOREACH _each IN ARRAY _due LOOP
        SELECT * INTO _gate FROM @schema@.gates WHERE id = _each;
        CONTINUE WHEN NOT FOUND OR NOT pg_try_advisory_xact_lock(
            hashtext('@schema@'), @schema@.gate_name_1(_gate.namespace, _gate.name, _gate.key)
        );
        SELECT * INTO _gate FROM @schema@.gates WHERE id = _each AND wake_at <= _now;
        IF FOUND THEN
            PERFORM @schema@.admit_1(_gate, _now);
        END IF;
    END LOOP;
END $$;

-- ---------------------------------------------------------------- asking

-- How many wait for a gate that takes no new run; NULL: it takes one. The gate is held from here on.
CREATE FUNCTION @schema@.full_1(_namespace text, _asked jsonb, _now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _rules jsonb := _asked -> 'rules';
    _gate @schema@.gates;
BEGIN
    PERFORM @schema@.hold_name_1(@schema@.gate_name_1(_namespace, _asked ->> 'name', _asked ->> 'key'));
    SELECT * INTO _gate FROM @schema@.gates
    WHERE namespace = _namespace AND name = _asked ->> 'name' AND key = _asked ->> 'key';
    IF NOT FOUND OR (_rules ->> 'stamp')::bigint > _gate.stamp THEN
        _gate.held := coalesce(_gate.held, 0);
        _gate.waiting := coalesce(_gate.waiting, 0);
        _gate.used := coalesce(_gate.used, 0);
        _gate.opened := coalesce(_gate.opened, 0);
        _gate.slots := (_rules ->> 'limit')::bigint;
        _gate.rate := (_rules ->> 'rate')::bigint;
        _gate.span := (_rules ->> 'window')::bigint;
        _gate.depth := (_rules ->> 'depth')::bigint;
    END IF;
    IF _gate.depth IS NULL OR _gate.waiting < _gate.depth
        OR (_gate.waiting = 0 AND @schema@.has_slot_1(_gate) AND @schema@.in_rate_1(_gate, _now))
    THEN
        RETURN NULL;
    END IF;
    RETURN _gate.waiting;
END $$;

-- Take a place in line, and perhaps a slot at once. Who has a ticket keeps it.
CREATE FUNCTION @schema@.ask_1(_run bigint, _namespace text, _asked jsonb, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _seq bigint := (_asked ->> 'seq')::bigint;
    _urgency bigint := (_asked ->> 'priority')::bigint;
    _gate @schema@.gates;
    _lane text := '';
    _arrival bigint;
    _rank bigint;
BEGIN
    PERFORM 1 FROM @schema@.tickets WHERE incarnation = _run AND seq = _seq;
    IF FOUND THEN
        RETURN;
    END IF;
    _gate := @schema@.declared_1(_namespace, _asked ->> 'name', _asked ->> 'key', _asked -> 'rules');
    IF _gate.fair THEN
        _lane := _asked ->> 'fairness';
    END IF;
    _arrival := nextval(pg_get_serial_sequence('@schema@.tickets', 'arrival'));
    _rank := CASE WHEN _gate.lifo THEN -_arrival ELSE _arrival END;
    INSERT INTO @schema@.tickets
    VALUES (_arrival, _gate.id, _run, _seq, false, _urgency, _asked ->> 'fairness', _lane, _rank, _now);
    UPDATE @schema@.runs SET tickets = tickets + 1, deadline = CASE WHEN _seq = -1 THEN NULL ELSE deadline END,
        gate = coalesce(gate, CASE WHEN _seq = -1 THEN _asked::text END)
    WHERE incarnation = _run;
    _gate.waiting := _gate.waiting + 1;
    IF _gate.waiting = 1 AND @schema@.has_slot_1(_gate) AND @schema@.in_rate_1(_gate, _now) THEN
        _gate := @schema@.grant_1(_gate, _arrival, _run, _seq, _lane, _now);
    ELSE
        INSERT INTO @schema@.lanes AS l VALUES (_gate.id, _urgency, _lane, _rank, coalesce(
            (SELECT service FROM @schema@.services WHERE gate = _gate.id AND lane = _lane AND _gate.fair), 0))
        ON CONFLICT (gate, urgency, lane) DO UPDATE SET head = least(l.head, excluded.head);
    END IF;
    PERFORM @schema@.admit_1(_gate, _now);
END $$;

-- A run that was just made asks for its gate, if it is due.
CREATE FUNCTION @schema@.ask_for_new_1(_run bigint, _namespace text, _asked jsonb, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @schema@.runs SET status = 2, listening = true, wake_at = NULL WHERE incarnation = _run AND status + 0 = 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM @schema@.ask_1(_run, _namespace, _asked, _now);
    UPDATE @schema@.runs SET status = 0, listening = false WHERE incarnation = _run AND wake_at IS NOT NULL;
END $$;

-- ---------------------------------------------------------------- giving back

-- Give tickets back: those of operations `_seqs`, or all. Then whoever is next is admitted.
CREATE FUNCTION @schema@.give_back_1(_runs bigint[], _seqs bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _name integer;
    _ticket @schema@.tickets;
    _gate @schema@.gates;
    _touched bigint[] := '{}';
BEGIN
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) AND tickets > 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR _name IN
        SELECT DISTINCT @schema@.gate_name_1(g.namespace, g.name, g.key) AS held
        FROM @schema@.tickets AS t JOIN @schema@.gates AS g ON g.id = t.gate
        WHERE t.incarnation = ANY (_runs) AND (_seqs IS NULL OR t.seq = ANY (_seqs)) ORDER BY held
    LOOP
        PERFORM @schema@.hold_name_1(_name);
    END LOOP;
    FOR _ticket IN
        DELETE FROM @schema@.tickets WHERE incarnation = ANY (_runs) AND (_seqs IS NULL OR seq = ANY (_seqs)) RETURNING *
    LOOP
        _touched := _touched || _ticket.gate;
        UPDATE @schema@.runs SET tickets = tickets - 1 WHERE incarnation = _ticket.incarnation;
        DELETE FROM @schema@.messages
        WHERE incarnation = _ticket.incarnation AND kind = 'grant' AND name = _ticket.seq::text;
        UPDATE @schema@.gates SET held = held - _ticket.held::integer, waiting = waiting - (NOT _ticket.held)::integer
        WHERE id = _ticket.gate;
        IF NOT _ticket.held THEN
            PERFORM @schema@.left_lane_1(_ticket.gate, _ticket.urgency, _ticket.lane, _ticket.rank);
        END IF;
    END LOOP;
    FOR _gate IN SELECT * FROM @schema@.gates WHERE id = ANY (_touched) ORDER BY namespace, name, key LOOP
        PERFORM @schema@.admit_1(_gate, _now);
    END LOOP;
END $$;

-- The next link of a chain has the slot that the old one held as a whole; the old one's other tickets are given back.
CREATE FUNCTION @schema@.hand_over_1(_old bigint, _new bigint, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _gate text;
    _tickets bigint;
    _moved integer;
BEGIN
    SELECT gate, tickets INTO _gate, _tickets FROM @schema@.runs WHERE incarnation = _old;
    IF _gate IS NOT NULL THEN
        UPDATE @schema@.runs SET gate = _gate WHERE incarnation = _new;
    END IF;
    IF _tickets = 0 THEN
        RETURN;
    END IF;
    UPDATE @schema@.tickets SET incarnation = _new WHERE incarnation = _old AND seq = -1;
    GET DIAGNOSTICS _moved = ROW_COUNT;
    UPDATE @schema@.runs SET tickets = tickets - _moved WHERE incarnation = _old;
    UPDATE @schema@.runs SET tickets = tickets + _moved WHERE incarnation = _new;
    PERFORM @schema@.give_back_1(ARRAY[_old], NULL, _now);
END $$;

-- Declare what gates of a name let through: that of one namespace, or (NULL) all and that of `default`.
CREATE FUNCTION @schema@.configure_1(_name text, _rules jsonb, _namespace text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _spaces text[] := ARRAY[coalesce(_namespace, 'default')];
    _keys text[] := ARRAY[''];
    _held integer;
    _each record;
BEGIN
    IF _namespace IS NULL THEN
        SELECT _spaces || coalesce(array_agg(namespace), '{}'), _keys || coalesce(array_agg(key), '{}')
        INTO _spaces, _keys FROM @schema@.gates WHERE name = _name AND NOT (namespace = 'default' AND key = '');
    END IF;
    FOR _held IN
        SELECT @schema@.gate_name_1(g.space, _name, g.key) AS held FROM unnest(_spaces, _keys) AS g (space, key) ORDER BY held
    LOOP
        PERFORM @schema@.hold_name_1(_held);
    END LOOP;
    FOR _each IN SELECT * FROM unnest(_spaces, _keys) AS g (space, key) ORDER BY g.space COLLATE "C", g.key COLLATE "C" LOOP
        PERFORM @schema@.admit_1(@schema@.declared_1(_each.space, _name, _each.key, _rules), _now);
    END LOOP;
END $$;

-- ---------------------------------------------------------------- looking

-- How gates stand: a row for each, followed by rows (`gate` NULL) of those that hold it and of those that wait.
CREATE FUNCTION @schema@.gates_1(_namespace text, _name text, _most integer, _limit integer)
RETURNS TABLE (
    gate @schema@.gates, run_id text, incarnation bigint, workflow text, seq bigint, held boolean, urgency bigint,
    fairness text, since bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _gate @schema@.gates;
BEGIN
    FOR _gate IN
        SELECT * FROM @schema@.gates AS g WHERE g.namespace = coalesce(_namespace, g.namespace)
        AND g.name = coalesce(_name, g.name) ORDER BY g.namespace, g.name, g.key LIMIT _most
    LOOP
        RETURN QUERY SELECT _gate, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::boolean, NULL::bigint,
            NULL::text, NULL::bigint;
        RETURN QUERY SELECT NULL::@schema@.gates, r.id, r.incarnation, r.workflow, t.seq, t.held, t.urgency, t.fairness, t.since
        FROM @schema@.tickets AS t JOIN @schema@.runs AS r ON r.incarnation = t.incarnation
        WHERE t.gate = _gate.id AND t.held ORDER BY t.since, t.arrival LIMIT _limit;
        RETURN QUERY SELECT NULL::@schema@.gates, r.id, r.incarnation, r.workflow, t.seq, t.held, t.urgency, t.fairness, t.since
        FROM @schema@.tickets AS t JOIN @schema@.runs AS r ON r.incarnation = t.incarnation
        WHERE t.gate = _gate.id AND NOT t.held ORDER BY t.urgency DESC, t.arrival LIMIT _limit;
    END LOOP;
END $$;
