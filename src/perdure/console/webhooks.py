"""Webhooks: what is posted to a signed link reaches the run that gave it out.

The link says where to (see `perdure.model.links`); without the app's secret none can be made, so a link is its own permission.
A delivery is answered only when it is durable, and one that is repeated with the same idempotency key arrives once.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from perdure.app.perdure import Perdure
from perdure.console.asgi import ASGI, Receive, Refused, Scope, Send, header, lifespan, read_body, respond
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.ids import check_name
from perdure.model.run import TERMINAL
from perdure.model.tokens import hooked_run

#: Bytes.
DEFAULT_LIMIT = 1024 * 1024
#: Bytes: base64 makes a third more of a body that is no JSON, and a value has room for so much.
LARGEST_LIMIT = 1536 * 1024

_FORM = "application/x-www-form-urlencoded"


def webhooks(app: Perdure, *, limit: int = DEFAULT_LIMIT) -> ASGI:
    """An ASGI application that delivers to `ctx.webhook()`; serve it at the app's `webhook_url`, on the app's own event loop.

    `POST` only, of at most `limit` bytes. 202: it is durable. 404: we never gave out that link. 405, 413: as they say. 400: the
    body is not what its `Content-Type` says, or the `Idempotency-Key` is no good. 410: the run has ended. 503: the store
    cannot be reached; try again. JSON arrives as it is, a form as its fields (a text each, the last of a name), all else as
    `bytes`. Raises `UsageError` for an app without a `secret`.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= LARGEST_LIMIT:
        raise UsageError(f"limit must be a number of bytes, up to {LARGEST_LIMIT}")
    links = app.settings.links()
    links.path("", "")  # raises where there is no secret

    async def deliver(scope: Scope, receive: Receive) -> None:
        place = links.read(str(scope["path"]).rpartition("/")[2])
        if place is None:
            raise Refused(404, "there is no such webhook")
        if scope["method"] != "POST":
            raise Refused(405, "post to a webhook", (b"allow", b"POST"))
        namespace, token = place
        await _check_open(app, token)
        body = await read_body(scope, receive, limit)
        key = header(scope, b"idempotency-key") or None
        payload = _payload(header(scope, b"content-type"), body)
        try:
            if key is not None:
                check_name(key, "an Idempotency-Key")
            await app.signal(payload=payload, token=token, id=key, namespace=namespace)
        except UsageError as error:  # what no store can take
            raise Refused(400, str(error)) from error

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            await deliver(scope, receive)
        except Refused as refused:
            await respond(send, refused.status, refused.text, *refused.headers)
        except StoreUnavailable:
            await respond(send, 503, "try again later", (b"retry-after", b"5"))
        except ConnectionError:
            return
        else:
            await respond(send, 202, "accepted")

    return application


async def _check_open(app: Perdure, token: str) -> None:
    """What comes for a run that has ended would be kept for ever."""
    run_id = hooked_run(token)
    if run_id is not None:
        run = await app.engine.reads.get(run_id)
        if run is None or run.status in TERMINAL:
            raise Refused(410, "nobody waits here any more")


def _payload(kind: str, body: bytes) -> Any:
    media = kind.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
    if media == _FORM:
        try:
            return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), errors="strict"))
        except ValueError as error:
            raise Refused(400, f"the body is no form: {error}") from error
    return base64.b64encode(body).decode()
