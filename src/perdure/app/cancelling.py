"""Cancelling many runs at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.app.opened import Opened
from perdure.engine.cancelling import CancelResult, cancel_where
from perdure.engine.handle import check_flag, check_reason
from perdure.engine.listing import run_query
from perdure.model.errors import UsageError
from perdure.model.run import Status


class Cancelling(Opened):
    """An app as far as it cancels runs by query: see `Perdure`."""

    async def cancel_where(
        self,
        *,
        status: Status | str | Iterable[Status | str] = (),
        workflow: str | None = None,
        namespace: str | None = None,
        tag: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        reason: str = "cancelled",
        compensate: bool = False,
        dry_run: bool = False,
    ) -> list[CancelResult]:
        """Cancel every run that these filters of `app.runs` find, each as `run.cancel` does.

        One result a match, newest first, also for those that had ended: they stay as they are. With `dry_run` nothing is done,
        and the results say how the matches stand. Raises `UsageError` without any filter but `namespace`.
        """
        if status == () and workflow is None and tag is None and attributes is None:
            raise UsageError(
                "cancel_where without a filter would cancel every run there is; give it status=, workflow=, tag= or attributes="
            )
        undo, dry = check_flag(compensate, "compensate"), check_flag(dry_run, "dry_run")
        space = self.settings.namespace if namespace is None else namespace
        query = run_query(status, workflow, space, tag, attributes, 1, None)
        return await cancel_where(self.engine, query, check_reason(reason), undo=undo, dry_run=dry)
