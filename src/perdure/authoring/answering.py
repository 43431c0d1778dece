"""What the context offers for being asked: queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.authoring.queries import Query
from perdure.authoring.seat import Seat


class Answering(Seat):
    """The part of the context that answers."""

    __slots__ = ()

    def on_query(self, name: str, fn: Callable[..., Any]) -> None:
        """Let `fn` answer `run.query(name, ...)`: a plain function that reads the body's state, and changes nothing.

        It is called whenever somebody asks, also long after the body has ended, in any process that has the code, on the state
        as it was last recorded. What it takes and returns passes through its type hints. The same name again replaces it.
        """
        query = Query(name, fn, self._inside().describe())
        if self._queries is None:
            self._queries = {}
        self._queries[name] = query

    @property
    def queries(self) -> dict[str, Query]:
        """Those that can be asked, by name."""
        return self._queries or {}
