"""What is read in several statements is of one moment; one odd row hides no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.commit import Create, Delete
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore, listing, reads
from perdure.testing import ManualClock
from perdure.testing.conformance.fleet import process
from perdure.testing.conformance.kit import LEASE, new


@pytest.mark.parametrize("verb", ["runs", "history", "messages"])
async def test_a_deletion_between_the_statements_of_a_read_is_not_seen(tmp_path: Path, verb: str) -> None:
    store = SqliteStore(str(tmp_path / "s.db"), clock=ManualClock())
    await store.open()
    large = b'"' + b"x" * 500_000 + b'"'
    await store.write([Create(run=new(f"r{i}", input=large)) for i in range(3)])
    deleted: list[str] = []
    path = store._place.path
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):

        def meanwhile(statement: str) -> None:
            if statement.lstrip().startswith("SELECT") and not deleted:
                deleted.append(statement)
            elif len(deleted) == 1:
                deleted.append(statement)
                other.execute("DELETE FROM runs")

        reader.set_trace_callback(meanwhile)
        if verb == "runs":
            assert [run.input for run in listing.runs(reader, RunQuery())] == [large] * 3
            assert len(deleted) == 2  # it took more than one statement
        elif verb == "history":
            assert reads.history(reader, [1, 2]) == {1: [], 2: []}
        else:
            assert reads.messages(reader, 1) == ()
        reader.set_trace_callback(None)
    await store.write([Delete("r0", b"null")])
    await store.close()


async def test_f10_a_member_that_cannot_be_read_hides_no_other_and_is_not_taken_for_gone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")
    await store.open()
    await store.write([Create(run=new("unserved"))])
    renewer = store.renewer()
    for owner in ("ada", "bob"):
        renewer.beat(process(owner, serves=()), LEASE)
    renewer.close()
    for odd in (b"{}", b"no JSON", "text", 7):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE processes SET process = ? WHERE owner = 'ada'", (odd,))
        assert [member.process.owner for member in await store.fleet()] == ["bob"]
        assert list(await store.block_unserved(0)) == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM processes WHERE owner = 'ada'")
    assert len(await store.block_unserved(0)) == 1
    await store.close()
