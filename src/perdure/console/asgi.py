"""As much of ASGI 3 (https://asgi.readthedocs.io/en/latest/specs/www.html) as we need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refused(Exception):
    """A request that is answered with this status and text."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, of at most `limit` bytes. Raises `Refused`, and `ConnectionError` if the caller is gone."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionError("the caller is gone")
        body += event.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not event.get("more_body", False):
            return bytes(body)


def header(scope: Scope, name: bytes) -> str:
    """The value of a header (its name in lower case); empty if there is none."""
    for key, value in scope.get("headers", ()):
        if key.lower() == name:
            return bytes(value).decode("latin-1").strip()
    return ""


async def respond(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    """Answer with a line of text."""
    body = f"{text}\n".encode()
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await send({"type": "http.response.start", "status": status, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def lifespan(receive: Receive, send: Send) -> None:
    """What a server tells of its own start and end: nothing is to be done then."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body has more than {limit} bytes")
