-- Streams: what runs write while they run. `place` is the offset that readers know: greater than all that were given before,
-- since whoever writes holds the run's row.

CREATE SEQUENCE @schema@.places;

CREATE TABLE @schema@.chunks (
    incarnation bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    payload bytea NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    attempt bigint NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (incarnation, stream, place)
);
-- Who does not know whether a chunk was written writes it again: it is there once.
CREATE UNIQUE INDEX chunks_once ON @schema@.chunks (incarnation, epoch, seq, attempt, stream, number);

-- Put chunks at the end of their streams, in order, each once. The run's row is locked.
CREATE FUNCTION @schema@.chunks_1(_run bigint, _epoch bigint, _chunks jsonb, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @schema@.chunks (incarnation, stream, place, payload, epoch, seq, attempt, number, at)
    SELECT _run, c.stream, nextval('@schema@.places'), decode(c.payload, 'base64'), _epoch, c.seq, c.attempt, c.index, _now
    FROM ROWS FROM (
        jsonb_to_recordset(_chunks) AS (stream text, payload text, seq bigint, attempt bigint, index bigint)
    ) WITH ORDINALITY AS c (stream, payload, seq, attempt, index, line)
    ON CONFLICT DO NOTHING;
END $$;

-- The offsets of the last chunks of these streams, in order; 0 where there is none.
CREATE FUNCTION @schema@.heads_1(_runs bigint[], _streams text[]) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT coalesce((
        SELECT c.place FROM @schema@.chunks AS c WHERE c.incarnation = a.run AND c.stream = a.stream
        ORDER BY c.place DESC LIMIT 1
    ), 0) FROM unnest(_runs, _streams) WITH ORDINALITY AS a (run, stream, line) ORDER BY a.line;
END $$;
