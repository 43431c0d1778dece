"""Performing a script with a link, in a blocking or an awaited way. The two say the same, line by line."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time  # noqa: TID251  # a pause in a thread that blocks
from collections.abc import Awaitable
from typing import Any, TypeVar

from perdure.drivers.links import Link
from perdure.model.errors import UsageError
from perdure.ports.databases import Ask, Begin, Call, Commit, Pause, Request, Script, Within

T = TypeVar("T")

log = logging.getLogger("perdure.drivers")


def perform(script: Script[T], link: Link) -> T:
    """With a blocking link. Whatever the script says or raises, what it began and did not commit is rolled back."""
    begun = False
    try:
        request = next(script)
        while True:
            begun = begun or isinstance(request, Begin)
            try:
                result = _do(request, link)
            except BaseException as error:
                request = script.throw(error)
            else:
                begun = begun and not isinstance(request, Commit)
                request = script.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        if begun:
            _quietly(link)


def _do(request: Request, link: Link) -> Any:
    match request:
        case Ask():
            return link.ask(request)
        case Within():
            return link.within(request.work)
        case Pause():
            return time.sleep(request.seconds)
        case Begin():
            return link.begin()
        case Commit():
            return link.commit()
        case Call():
            result = request.fn(link.handle)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise UsageError(
                    f"the function of a transaction on a blocking connection ({type(link.handle).__qualname__}) runs in a "
                    "thread and cannot be awaited; make it a plain one"
                )
            return result


def _quietly(link: Link) -> None:
    """Roll back; the connection may be what is broken."""
    try:
        link.rollback()
    except Exception as error:
        log.debug("perdure: a transaction could not be rolled back, its connection is given up: %r", error)


async def perform_awaited(script: Script[T], link: Link) -> T:
    """On the event loop, with a link that is awaited, or that blocks so shortly that it may be used there.

    A commit that has begun is not cut off by a cancel, which then counts for nothing.
    """
    begun = False
    try:
        request = next(script)
        while True:
            begun = begun or isinstance(request, Begin)
            try:
                result = await _do_awaited(request, link)
            except BaseException as error:
                request = script.throw(error)
            else:
                begun = begun and not isinstance(request, Commit)
                request = script.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        if begun:
            await _quietly_awaited(link)


async def _do_awaited(request: Request, link: Link) -> Any:
    match request:
        case Ask():
            return await _given(link.ask(request))
        case Within():
            return await _given(link.within(request.work))
        case Pause():
            return await asyncio.sleep(request.seconds)
        case Begin():
            return await _given(link.begin())
        case Commit():
            return await _to_its_end(_given(link.commit()))
        case Call():
            return await _given(request.fn(link.handle))


async def _given(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _quietly_awaited(link: Link) -> None:
    try:
        await _to_its_end(_given(link.rollback()))
    except Exception as error:
        log.debug("perdure: a transaction could not be rolled back, its connection is given up: %r", error)


async def _to_its_end(work: Awaitable[Any]) -> Any:
    """What it gives; the first cancel meanwhile is passed over."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.done():
            raise
    await asyncio.wait([task])
    return task.result()
