"""Entities, called from outside workflows."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Any, TypeVar, cast

from perdure.app.publishing import Publishing
from perdure.authoring.asking import Question
from perdure.authoring.options import StartOptions
from perdure.engine import queries, updates
from perdure.engine.handle import RunHandle
from perdure.engine.sending import accepted, delivered
from perdure.model.commit import Missing, Send
from perdure.model.errors import RunNotFound
from perdure.model.messages import Outgoing
from perdure.model.run import RunKey
from perdure.model.updates import opened
from perdure.patterns.entity import CALL, STATE, Calls, definition_of

E = TypeVar("E")

#: Entities whose newest link is remembered.
_REMEMBERED = 10_000


class Addressing(Publishing):
    """An app as far as it calls entities: see `Perdure`."""

    #: The newest link of entities that were called lately: to begin there spares the walk along the chain.
    _links: OrderedDict[str, RunKey]

    def entity(self, cls: type[E], key: str) -> E:
        """The entity of this class and key, to be called: `await app.entity(Account, "ada").deposit(5)`.

        The first call starts it. A call returns what the operation returned, and raises what it raised, once that is durable;
        whoever gives up waiting does not take it back. Raises `InvalidArguments` and `InvalidValue` before anything is
        written, and `RunEnded` if the entity's run was ended. Only operations are there: for the rest see `entity_state`.
        """
        definition = definition_of(cls)
        run_id = definition.run_id(key)
        self._serve_too(definition.workflow)

        async def send(operation: str, arg: bytes) -> Any:
            what = f"operation {operation!r} of entity {definition.name}:{key}"
            question = Question(workflow=definition.workflow, run_id=run_id, name=CALL, arg=arg, what=what)
            update_id = secrets.token_hex(8)
            link = await self._reach(question, update_id, None, self._last_links().get(run_id))
            self._remember(run_id, link)
            data = await updates.answer(self.engine, link, update_id, what)
            return definition.operations[operation].signature.decode_result(opened(data))

        return cast("E", Calls(definition, key, send))

    async def entity_state(self, cls: type[E], key: str) -> E:
        """A copy of the entity's state as its last operation left it. Raises `RunNotFound` if it was never called."""
        definition = definition_of(cls)
        run_id = definition.run_id(key)
        self._serve_too(definition.workflow)
        known = self._last_links().get(run_id)
        handle = RunHandle[Any](self.engine, run_id if known is None else known.id, None)
        try:
            run = await (await handle.latest()).info()
        except RunNotFound:
            self._last_links().pop(run_id, None)
            run = await (await RunHandle[Any](self.engine, run_id, None).latest()).info()
        return cast("E", await queries.query(self.engine, run, STATE, (), definition.cls))

    async def deliver(self, question: Question, update_id: str, reply: str | None) -> None:
        """See `perdure.authoring.ambient.Launcher`."""
        self._serve_too(question.workflow)
        # By the first link: only there is it known that it was sent before.
        await self._reach(question, update_id, reply, None)

    async def _reach(self, question: Question, update_id: str, reply: str | None, known: RunKey | None) -> RunKey:
        """Send an update to the run, which is started if there is none; the link that it went to."""
        engine = self.engine
        if known is not None:
            message = _message(question, update_id, reply, known.id, known.incarnation)
            try:
                return await accepted(engine, message) or known
            except RunNotFound:
                self._last_links().pop(question.run_id, None)  # deleted; perhaps there is another by now
        message = _message(question, update_id, reply, question.run_id, None)
        answer = await engine.ask(Send(message))
        if isinstance(answer, Missing):
            workflow = question.workflow
            options = StartOptions(id=question.run_id).over(workflow.declared)
            handle = await self._start(workflow, workflow.encode_input((), {}), options, (message,))
            return (await handle.info()).key
        key = delivered(answer, message)
        return key or (await RunHandle[Any](engine, question.run_id, None).info()).key

    def _last_links(self) -> OrderedDict[str, RunKey]:
        if "_links" not in vars(self):
            self._links = OrderedDict()
        return self._links

    def _remember(self, run_id: str, link: RunKey) -> None:
        links = self._last_links()
        links[run_id] = link
        links.move_to_end(run_id)
        if len(links) > _REMEMBERED:
            links.popitem(last=False)


def _message(question: Question, update_id: str, reply: str | None, run_id: str, incarnation: int | None) -> Outgoing:
    return updates.outgoing_update(
        question.name, update_id, question.arg, run_id=run_id, incarnation=incarnation, reply=reply
    )
