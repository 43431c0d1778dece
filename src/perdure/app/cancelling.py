"""Cancelling many runs at once."""

from __future__ import annotations

from typing import Unpack

from perdure.app.opened import Opened
from perdure.engine.cancelling import CancelResult, cancel_where
from perdure.engine.handle import check_flag, check_reason
from perdure.engine.listing import RunFilters, every, run_query
from perdure.model.errors import UsageError


class Cancelling(Opened):
    """An app as far as it cancels runs by query: see `Perdure`."""

    async def cancel_where(
        self,
        *,
        reason: str = "cancelled",
        compensate: bool = False,
        dry_run: bool = False,
        **filters: Unpack[RunFilters],
    ) -> list[CancelResult]:
        """Cancel every run that these filters of `app.runs` find, each as `run.cancel` does.

        One result a match, newest first, also for those that had ended: they stay as they are. With `dry_run` nothing is done,
        and the results say how the matches stand. Raises `UsageError` without any filter but `namespace`.
        """
        query = run_query(filters, self.settings.namespace)
        if every(query, query.namespace):
            raise UsageError(
                "cancel_where without a filter would cancel every run there is; give it status=, workflow=, tag=, origin=, "
                "where= or attributes="
            )
        undo, dry = check_flag(compensate, "compensate"), check_flag(dry_run, "dry_run")
        return await cancel_where(self.engine, query, check_reason(reason), undo=undo, dry_run=dry)
