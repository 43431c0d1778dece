"""Where a workflow body stands in its run: what all that the context offers is built on."""

from __future__ import annotations

from typing import Any

from perdure.authoring.issuing import inside
from perdure.authoring.marker import ContextMarker
from perdure.authoring.queries import Query
from perdure.authoring.registry import Registry
from perdure.authoring.updates import Update
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.model.gates import Rules
from perdure.model.links import NO_LINKS, Links


class Seat(ContextMarker):
    """One workflow run, seen from inside its body."""

    __slots__ = ("_definition", "_instance", "_links", "_queries", "_registry", "_updates")

    def __init__(
        self,
        instance: Instance,
        registry: Registry,
        definition: WorkflowDefinition[Any, Any],
        links: Links = NO_LINKS,
    ) -> None:
        self._instance = instance
        self._registry = registry
        self._definition = definition
        self._links = links
        self._queries: dict[str, Query] | None = None
        #: Taken and not answered, by id.
        self._updates: dict[str, Update[Any]] | None = None

    @property
    def run_id(self) -> str:
        return self._instance.run.id

    def queue_rules(self, name: str) -> Rules:
        """What the queue lets through. Raises `NotRegistered`."""
        return self._registry.queue(name)

    def _inside(self) -> Instance:
        """The run, for what only its body may ask for."""
        return inside(self._instance)
