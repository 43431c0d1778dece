"""Operating many runs at once."""

from __future__ import annotations

from typing import Unpack

from perdure.app.opened import Opened
from perdure.engine import bulk, requeueing, steering
from perdure.engine.bulk import Item
from perdure.engine.listing import RunFilters
from perdure.model.commit import Changed, Delete, Way
from perdure.model.endings import cancelled_failure
from perdure.model.errors import RunNotFound
from perdure.model.failure import encode_failure
from perdure.model.run import REQUEUABLE, TERMINAL, Run, Status


class Operating(Opened):
    """An app as far as it operates many runs at once: see `Perdure`.

    Each call acts on all runs that the filters find (see `RunFilters`; at least one is needed), newest first, one by one, and
    returns each run's id and what became of it. With `dry_run` nothing is written, and the answer says what would be done. A
    call that is cut short has done a part, and can be made again. Raises `UsageError`.
    """

    async def requeue_where(
        self, *, dry_run: bool = False, children: bool = False, **filters: Unpack[RunFilters]
    ) -> list[Item]:
        """As `run.requeue`, on all of them. Those that are neither failed, dead nor blocked are unchanged."""

        async def one(run: Run) -> bool:
            await requeueing.requeue(self.engine, run.id, run.incarnation, children=children)
            return True

        return await self._each("requeue_where", filters, dry_run, _can_be_requeued, one)

    async def delete_where(self, *, dry_run: bool = False, **filters: Unpack[RunFilters]) -> list[Item]:
        """As `run.delete`, on all of them, with what is below them."""

        async def one(run: Run) -> bool:
            answer = await self.engine.ask(
                Delete(run.id, encode_failure(cancelled_failure("deleted")), run.incarnation)
            )
            if not isinstance(answer, Changed):
                raise RunNotFound(run.id)
            return True

        return await self._each("delete_where", filters, dry_run, lambda run: True, one)

    async def pause_where(self, *, dry_run: bool = False, **filters: Unpack[RunFilters]) -> list[Item]:
        """As `run.pause`, on all of them. Those that have ended are unchanged."""
        return await self._steer("pause_where", filters, dry_run, Way.PAUSE)

    async def unpause_where(self, *, dry_run: bool = False, **filters: Unpack[RunFilters]) -> list[Item]:
        """As `run.unpause`, on all of them."""
        return await self._steer("unpause_where", filters, dry_run, Way.UNPAUSE)

    async def _steer(self, verb: str, filters: RunFilters, dry_run: bool, way: Way) -> list[Item]:
        async def one(run: Run) -> bool:
            return await steering.steer(self.engine, run.id, run.incarnation, way) is not None

        def wants(run: Run) -> bool:
            return run.status not in TERMINAL and (run.paused_at is None) == (way is Way.PAUSE)

        return await self._each(verb, filters, dry_run, wants, one)

    async def _each(
        self,
        verb: str,
        filters: RunFilters,
        dry_run: bool,
        wants: bulk.Wants,
        one: bulk.One,
    ) -> list[Item]:
        return await bulk.act(
            self.engine, filters, self.settings.namespace, f"app.{verb}", dry_run=dry_run, wants=wants, one=one
        )


def _can_be_requeued(run: Run) -> bool:
    return run.status in REQUEUABLE or run.status is Status.BLOCKED


__all__ = ["Operating"]
