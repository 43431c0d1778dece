-- Within a transaction of the user's own, on his connection: steps that commit together with what he writes, and runs and
-- messages that exist if he commits. Each function takes one text and gives one, which every driver can do. His session has his
-- settings: what ours need (see perdure.stores.postgres.connections) stands with each function. Each is told the number of
-- the transaction that it was begun in, and does nothing if it is called in another one.

-- The outputs of steps, for attempts that come after the commit and before the turn that takes it into history.
CREATE TABLE @schema@.transactions (
    incarnation bigint NOT NULL,
    seq bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- The transaction that it was written in: it is not that one's any more if the user's function committed.
    xact bigint NOT NULL,
    output bytea,
    PRIMARY KEY (incarnation, seq)
);

CREATE FUNCTION @schema@.is_held_1(_ticket jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM @schema@.runs
        WHERE incarnation = (_ticket ->> 'run')::bigint AND id = _ticket ->> 'id' AND seed = (_ticket ->> 'seed')::bigint
        AND status + 0 = 1 AND owner = _ticket ->> 'owner' AND epoch = (_ticket ->> 'epoch')::bigint
    );
END $$;

-- Take the step's row, and wait for whoever has it; its output, if an earlier attempt has committed.
CREATE FUNCTION @schema@.enter_step_1(_text text) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    _ticket jsonb := _text::jsonb;
    _run bigint := (_ticket ->> 'run')::bigint;
    _seq bigint := (_ticket ->> 'seq')::bigint;
    _name text := _ticket ->> 'name';
    _there @schema@.transactions;
BEGIN
    IF txid_current() <> (_ticket ->> 'xact')::bigint THEN
        RETURN json_build_object('answer', 'alone');
    END IF;
    INSERT INTO @schema@.transactions VALUES (_run, _seq, _name, txid_current()) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO _there FROM @schema@.transactions WHERE incarnation = _run AND seq = _seq FOR UPDATE;
    END IF;
    -- Only now: whoever was waited for may have been the holder until then.
    IF NOT @schema@.is_held_1(_ticket) THEN
        RETURN json_build_object('answer', 'fenced');
    END IF;
    IF _there.output IS NOT NULL AND _there.name = _name THEN
        RETURN json_build_object('answer', 'done', 'output', replace(encode(_there.output, 'base64'), chr(10), ''));
    END IF;
    IF _there.incarnation IS NOT NULL THEN
        UPDATE @schema@.transactions SET name = _name, xact = txid_current(), output = NULL
        WHERE incarnation = _run AND seq = _seq;
    END IF;
    RETURN json_build_object('answer', 'begun');
END $$;

-- Set the output. From here to the commit nobody can claim the run: who commits it is the one who holds it.
CREATE FUNCTION @schema@.leave_step_1(_text text) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    _ticket jsonb := _text::jsonb;
    _run bigint := (_ticket ->> 'run')::bigint;
BEGIN
    UPDATE @schema@.transactions SET output = decode(_ticket ->> 'output', 'base64')
    WHERE incarnation = _run AND seq = (_ticket ->> 'seq')::bigint AND xact = txid_current();
    IF NOT FOUND THEN
        RETURN json_build_object('answer', 'lost');
    END IF;
    PERFORM 1 FROM @schema@.runs WHERE incarnation = _run FOR SHARE;
    IF NOT @schema@.is_held_1(_ticket) THEN
        RETURN json_build_object('answer', 'fenced');
    END IF;
    RETURN json_build_object('answer', 'kept');
END $$;

-- Apply one write as part of the transaction. What it cannot do leaves the transaction as it was.
CREATE FUNCTION @schema@.outbox_1(_text text) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_material = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET lock_timeout = '10s' AS $$
DECLARE
    _call jsonb := _text::jsonb;
    _touched jsonb := _call -> 'touched';
    _row record;
BEGIN
    IF txid_current() <> (_call ->> 'xact')::bigint THEN
        RETURN json_build_object('answer', 'alone');
    END IF;
    BEGIN
        SELECT * INTO _row FROM @schema@.write_1(
            (_call ->> 'at')::bigint, jsonb_build_array(_call -> 'write'),
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 0))::bigint[],
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 1))::bigint[],
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 2))::bigint[],
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 3)),
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 4)),
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 5)),
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 6)),
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 7))::bigint[],
            ARRAY(SELECT jsonb_array_elements_text(_touched -> 8)), (_touched ->> 9)::jsonb
        ) LIMIT 1;
        -- Whoever listens hears of it with the commit.
        PERFORM pg_notify(_call ->> 'channel', 'changed ');
    EXCEPTION
        WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
            RETURN json_build_object('answer', 'busy', 'reason', SQLERRM);
        WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
            RETURN json_build_object('answer', 'unstorable', 'reason', SQLERRM);
    END;
    RETURN json_build_object(
        'answer', _row.answer,
        'id', coalesce((_row.run).id, _row.key_id),
        'incarnation', coalesce((_row.run).incarnation, _row.key_incarnation),
        'workflow', (_row.run).workflow,
        'status', (_row.run).status
    );
END $$;
