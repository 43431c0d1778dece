"""What was rolled back because others were at it is begun anew, and nobody hears of it."""

from __future__ import annotations

import pytest

from perdure.model.commit import Applied, Create
from perdure.model.errors import StoreUnavailable
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new
from tests.servers.databases import Schema
from tests.servers.sql import Admin

#: The first new runs fail. A sequence is not rolled back.
FAILING = """
    CREATE SEQUENCE {0}.tries;
    CREATE FUNCTION {0}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('{0}.tries') <= {1} THEN
            RAISE {2} USING MESSAGE = 'on purpose';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER fail AFTER INSERT ON {0}.runs FOR EACH ROW EXECUTE FUNCTION {0}.fail();
"""


async def opened(schema: Schema, admin: Admin, times: int, error: str, patience: float = 30.0) -> PostgresStore:
    store = PostgresStore(schema.store, clock=ManualClock(), patience=patience)
    await store.open()
    admin.execute(FAILING.format(f'"{schema.name}"', times, error))
    return store


@pytest.mark.parametrize("error", ["serialization_failure", "deadlock_detected", "lock_not_available"])
async def test_f83_a_conflict_is_begun_anew(error: str, postgres_schema: Schema, postgres_admin: Admin) -> None:
    store = await opened(postgres_schema, postgres_admin, 3, error)
    answers = await store.write([Create(run=new("r"))])
    run = await store.get("r")
    assert run is not None
    assert (answers, store.begun_anew) == ([Applied(run.key)], 3)
    await store.close()


async def test_f83_a_conflict_that_does_not_end_is_one_clear_error(
    postgres_schema: Schema, postgres_admin: Admin
) -> None:
    store = await opened(postgres_schema, postgres_admin, 1_000_000, "deadlock_detected", patience=0.3)
    with pytest.raises(StoreUnavailable, match="stayed locked by others for too long"):
        await store.write([Create(run=new("r"))])
    assert await store.get("r") is None
    assert store.begun_anew > 1
    await store.close()
