"""A workflow definition as the core runs it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from perdure.authoring.context import Context
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.model.links import NO_LINKS, Links


class WorkflowBody:
    """`perdure.core.turn.Body` of one definition in one registry."""

    def __init__(self, definition: WorkflowDefinition[Any, Any], registry: Registry, links: Links = NO_LINKS) -> None:
        self._definition = definition
        self._registry = registry
        self._links = links

    def start(self, instance: Instance) -> Coroutine[Any, Any, Any]:
        """The body's coroutine, begun on the run's stored input."""
        context = Context(instance, self._registry, self._definition, self._links)
        instance.context = context
        return self._definition.call(context, instance.run.input)

    def encode_result(self, value: Any) -> bytes:
        """The stored form of what the body returned."""
        return self._definition.signature.encode_result(value)
