-- Events: who waits for one (among the waits for tokens, under a name that no token has), what is kept of those that reached
-- nobody, and what a publish does. All that is looked at and changed here belongs to one name, which is held: see `lock_1`.

-- Events that reached nobody, and by which facets they are found.
CREATE TABLE @schema@.kept_events (
    namespace text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    payload bytea NOT NULL,
    facets text[] NOT NULL,
    at bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (namespace, event, arrival)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX kept_events_over ON @schema@.kept_events (expires_at);

CREATE TABLE @schema@.kept_facets (
    namespace text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    facet text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    PRIMARY KEY (namespace, event, facet, arrival)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The ids of events.
CREATE TABLE @schema@.published (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    reached bigint NOT NULL,
    forget_at bigint,
    PRIMARY KEY (namespace, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX published_over ON @schema@.published (forget_at) WHERE forget_at IS NOT NULL;

-- What starts runs, as JSON; an empty namespace is all of them.
CREATE TABLE @schema@.subscriptions (
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    subscription bytea NOT NULL,
    PRIMARY KEY (namespace, workflow, version)
);

-- ---------------------------------------------------------------- waits

-- The waits that an event with these facets fits, oldest first. By the index, for each first facet that a wait can have.
CREATE FUNCTION @schema@.fitting_1(_namespace text, _line text, _facets text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT w.place FROM unnest(array_prepend('', _facets)) AS f (probe) CROSS JOIN LATERAL (
            SELECT place, facets FROM @schema@.waits
            WHERE namespace = _namespace AND token = _line AND probe = f.probe AND served IS NULL AND probe IS NOT NULL
            OFFSET 0
        ) AS w
        WHERE w.facets <@ _facets ORDER BY w.place
    );
END $$;

-- Give an event to these waits; returns their runs. `_back`, `_until`: what to give back if it is not read; NULL: nothing.
CREATE FUNCTION @schema@.serve_1(
    _places bigint[], _event text, _payload bytea, _at bigint, _arrival bigint, _back text[], _until bigint, _now bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _runs bigint[] := ARRAY(SELECT DISTINCT incarnation FROM @schema@.waits WHERE place = ANY (_places) ORDER BY 1);
BEGIN
    IF cardinality(_runs) = 0 THEN
        RETURN _runs;
    END IF;
    PERFORM 1 FROM @schema@.runs WHERE incarnation = ANY (_runs) ORDER BY incarnation FOR NO KEY UPDATE;
    WITH fit AS (
        SELECT w.place, w.incarnation, w.seq,
            r.inbox + row_number() OVER (PARTITION BY w.incarnation ORDER BY w.place) AS number
        FROM @schema@.waits AS w JOIN @schema@.runs AS r ON r.incarnation = w.incarnation WHERE w.place = ANY (_places)
    ), told AS (
        INSERT INTO @schema@.messages (incarnation, number, kind, name, token, payload, failed, at, arrival)
        SELECT f.incarnation, f.number, 'event', _event, f.seq::text, _payload, false, _at, _arrival FROM fit AS f
    ), served AS (
        UPDATE @schema@.waits AS w SET served = f.number, back = _back, back_until = _until FROM fit AS f
        WHERE w.place = f.place
    )
    UPDATE @schema@.runs AS r SET inbox = f.last, updated_at = _now,
        wake_at = CASE WHEN r.status = 2 AND r.listening THEN least(coalesce(r.wake_at, _now), _now) ELSE r.wake_at END
    FROM (SELECT incarnation, max(number) AS last FROM fit GROUP BY incarnation) AS f
    WHERE r.incarnation = f.incarnation;
    RETURN _runs;
END $$;

-- Take the oldest kept copy that fits, or wait for the next event that does. Of the copies that have the first facet the
-- oldest are looked at (perdure.model.events.MOST_CANDIDATES).
CREATE FUNCTION @schema@.listen_1(_run bigint, _namespace text, _listen jsonb, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _event text := _listen ->> 'event';
    _facets text[] := ARRAY(SELECT jsonb_array_elements_text(_listen -> 'facets'));
    _probe text := coalesce(_facets[1], '');
    _place bigint;
    _found @schema@.kept_events;
BEGIN
    PERFORM @schema@.hold_name_1(@schema@.name_1(_namespace, chr(31) || _event));
    INSERT INTO @schema@.waits (namespace, token, incarnation, seq, probe, facets)
    VALUES (_namespace, chr(31) || _event, _run, (_listen ->> 'seq')::bigint, _probe, _facets) RETURNING place INTO _place;
    IF _probe = '' THEN
        SELECT * INTO _found FROM @schema@.kept_events
        WHERE namespace = _namespace AND event = _event AND expires_at > _now ORDER BY arrival LIMIT 1;
    ELSE
        SELECT (c.kept).* INTO _found FROM (
            SELECT k AS kept FROM @schema@.kept_facets AS f CROSS JOIN LATERAL (
                SELECT * FROM @schema@.kept_events
                WHERE namespace = f.namespace AND event = f.event AND arrival = f.arrival AND expires_at > _now OFFSET 0
            ) AS k
            WHERE f.namespace = _namespace AND f.event = _event AND f.facet = _probe ORDER BY f.arrival LIMIT 50
        ) AS c
        WHERE (c.kept).facets @> _facets ORDER BY (c.kept).arrival LIMIT 1;
    END IF;
    IF _found.arrival IS NOT NULL THEN
        PERFORM @schema@.unkeep_1(_namespace, _event, _found.arrival, _found.facets);
        PERFORM @schema@.serve_1(
            ARRAY[_place], _event, _found.payload, _found.at, _found.arrival, _found.facets, _found.expires_at, _now
        );
    END IF;
END $$;

-- One copy, given back by a wait: to the oldest wait that fits, else kept, until its time is over. The name is held.
CREATE FUNCTION @schema@.offer_1(
    _namespace text, _event text, _payload bytea, _facets text[], _at bigint, _arrival bigint, _until bigint, _now bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _places bigint[];
BEGIN
    IF _until <= _now THEN
        RETURN;
    END IF;
    _places := @schema@.fitting_1(_namespace, chr(31) || _event, _facets);
    IF cardinality(_places) > 0 THEN
        PERFORM @schema@.serve_1(_places[1:1], _event, _payload, _at, _arrival, _facets, _until, _now);
    ELSE
        PERFORM @schema@.keep_1(_namespace, _event, _payload, _facets, _at, _arrival, _until);
    END IF;
END $$;

-- ---------------------------------------------------------------- what is kept

CREATE FUNCTION @schema@.keep_1(
    _namespace text, _event text, _payload bytea, _facets text[], _at bigint, _arrival bigint, _until bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @schema@.kept_events VALUES (_namespace, _event, _arrival, _payload, _facets, _at, _until);
    INSERT INTO @schema@.kept_facets SELECT _namespace, _event, f, _arrival FROM unnest(_facets) AS f;
END $$;

CREATE FUNCTION @schema@.unkeep_1(_namespace text, _event text, _arrival bigint, _facets text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM @schema@.kept_events WHERE namespace = _namespace AND event = _event AND arrival = _arrival;
    DELETE FROM @schema@.kept_facets
    WHERE namespace = _namespace AND event = _event AND arrival = _arrival AND facet = ANY (_facets);
END $$;

-- Clear away some of what nobody may see any more, whatever its name: what others have locked is passed over.
CREATE FUNCTION @schema@.sweep_1(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _over @schema@.kept_events;
BEGIN
    FOR _over IN
        SELECT * FROM @schema@.kept_events WHERE expires_at <= _now ORDER BY expires_at LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM @schema@.unkeep_1(_over.namespace, _over.event, _over.arrival, _over.facets);
    END LOOP;
    DELETE FROM @schema@.published AS p USING (
        SELECT namespace, id FROM @schema@.published WHERE forget_at <= _now ORDER BY forget_at LIMIT 20
        FOR UPDATE SKIP LOCKED
    ) AS o
    WHERE p.namespace = o.namespace AND p.id = o.id;
END $$;

-- ---------------------------------------------------------------- publishing

-- The run that collects events gets one: begun if there is none, continued if its chain has ended. Returns who got it.
CREATE FUNCTION @schema@.feed_1(_feed jsonb, _facets jsonb, _now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _new jsonb := _feed -> 'run';
    _first bigint;
    _workflow text;
    _last @schema@.runs;
    _next text;
    _run bigint;
BEGIN
    SELECT incarnation, workflow INTO _first, _workflow FROM @schema@.runs WHERE id = _new ->> 'id';
    IF _first IS NULL THEN
        _run := @schema@.begin_1(_new, NULL, NULL, NULL, _new ->> 'awaited_as', _facets, _now);
        IF _run IS NULL THEN
            RAISE serialization_failure USING MESSAGE = 'an id was taken this very moment';
        END IF;
    ELSE
        IF _workflow <> _new ->> 'workflow' THEN
            RAISE data_exception USING MESSAGE = format(
                'the id %s of a run that collects events is taken by %s', quote_literal(_new ->> 'id'), quote_literal(_workflow)
            );
        END IF;
        _last := @schema@.hold_last_1(_first);
        IF _last.incarnation IS NULL THEN
            RAISE serialization_failure USING MESSAGE = 'a run was deleted this very moment';
        END IF;
        _run := _last.incarnation;
        IF _last.status >= 4 THEN
            _next := coalesce(
                (SELECT m[1] || '~' || (m[2]::bigint + 1) FROM regexp_match(_last.id, '^(.*)~([0-9]+)$') AS m),
                _last.id || '~1'
            );
            _run := @schema@.begin_1(
                jsonb_set(_new, '{id}', to_jsonb(_next)), NULL, NULL, NULL, _new ->> 'awaited_as', _facets, _now
            );
            IF _run IS NULL THEN
                RAISE data_exception USING MESSAGE = format(
                    'the run %s cannot be continued as %s: another run has that id',
                    quote_literal(_last.id), quote_literal(_next)
                );
            END IF;
            UPDATE @schema@.runs SET continued_to = _next, successor = _run, updated_at = _now
            WHERE incarnation = _last.incarnation;
        END IF;
    END IF;
    PERFORM @schema@.send_1(_feed -> 'message', _now);
    RETURN _run;
END $$;

-- Give an event to all whom it concerns, once for its id. `_facets`: what its new runs can be found by.
CREATE FUNCTION @schema@.publish_1(_event jsonb, _facets jsonb, _now bigint, OUT _reached bigint, OUT _runs bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    _name text := _event ->> 'name';
    _namespace text := _event ->> 'namespace';
    _id text := _event ->> 'id';
    _payload bytea := decode(_event ->> 'payload', 'base64');
    _fields text[] := ARRAY(SELECT jsonb_array_elements_text(_event -> 'facets'));
    _keep bigint := (_event ->> 'keep')::bigint;
    _arrival bigint;
    _places bigint[];
    _before text;
    _each jsonb;
    _place bigint;
    _run bigint;
BEGIN
    PERFORM @schema@.hold_name_1(@schema@.name_1(_namespace, chr(31) || _name));
    PERFORM @schema@.sweep_1(_now);
    _runs := '{}';
    -- (The same id under another name, at the same time, is waited for here.)
    INSERT INTO @schema@.published AS p VALUES (_namespace, _id, _name, 0, _now + (_event ->> 'remember')::bigint)
    ON CONFLICT (namespace, id) DO UPDATE SET event = excluded.event, reached = 0, forget_at = excluded.forget_at
    WHERE p.forget_at <= _now;
    IF NOT FOUND THEN
        SELECT event, reached INTO _before, _reached FROM @schema@.published WHERE namespace = _namespace AND id = _id;
        IF _before IS DISTINCT FROM _name THEN
            RAISE data_exception USING MESSAGE = format(
                'the event id %s was published before as %s; give each event an id of its own',
                quote_literal(_id), quote_literal(_before)
            );
        END IF;
        RETURN;
    END IF;
    _arrival := nextval('@schema@.arrivals');
    _places := @schema@.fitting_1(_namespace, chr(31) || _name, _fields);
    FOR _each, _place IN SELECT * FROM jsonb_array_elements(_event -> 'starts') WITH ORDINALITY LOOP
        _run := @schema@.begin_1(
            _each, NULL, NULL, NULL, _each ->> 'awaited_as', _facets #> ARRAY['starts', (_place - 1)::text], _now
        );
        IF _run IS NOT NULL THEN
            _runs := _runs || _run;
        END IF;
    END LOOP;
    FOR _each, _place IN SELECT * FROM jsonb_array_elements(_event -> 'feeds') WITH ORDINALITY LOOP
        _runs := _runs || @schema@.feed_1(_each, _facets #> ARRAY['feeds', (_place - 1)::text], _now);
    END LOOP;
    _reached := cardinality(_places) + cardinality(_runs);
    IF _reached = 1 AND _keep IS NOT NULL THEN
        _runs := _runs || @schema@.serve_1(_places, _name, _payload, _now, _arrival, _fields, _now + _keep, _now);
    ELSIF _reached > 0 THEN
        _runs := _runs || @schema@.serve_1(_places, _name, _payload, _now, _arrival, NULL, NULL, _now);
    ELSIF _keep IS NOT NULL THEN
        PERFORM @schema@.keep_1(_namespace, _name, _payload, _fields, _now, _arrival, _now + _keep);
    END IF;
    IF _reached > 0 THEN
        UPDATE @schema@.published SET reached = _reached WHERE namespace = _namespace AND id = _id;
    END IF;
END $$;
