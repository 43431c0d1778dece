"""An expense is approved on a web page. One process serves the page, the links, and the workflow.

    python examples/approval.py 8080 950 ada bob      # prints a link for each of them, and who decided

Open one of the links. Kill the program and start it again as you like: the links still work. (After a kill it takes as long
as a lease until somebody takes the run over: here two seconds.)
(The HTTP server here is just long enough for the example. Serve `webhooks(app)` with the one that you have.)
"""

from __future__ import annotations

import asyncio
import html
import sys
from typing import Any

from perdure import Context, Perdure, step, workflow
from perdure.console import webhooks
from perdure.patterns.approval import ApprovalRequest, approval

PAGE = """<!doctype html><meta charset="utf-8"><title>Approval</title>
<form method="post" action="/hooks/{link}"><p>May we spend it?</p><p><input name="comment" placeholder="comment"></p>
<button name="option" value="approve">approve</button> <button name="option" value="reject">reject</button></form>
"""


@step(max_attempts=5)
async def ask(request: ApprovalRequest) -> None:
    # A mail, in earnest. The page has the last part of the link in its own address.
    page = str(request.url).replace("/hooks/", "/approve/")
    print(f"{request.who}: {request.question} {page}", flush=True)


@workflow
async def expense(ctx: Context, amount: int, who: list[str]) -> str:
    decision = await approval(ctx, who=who, question=f"{amount}?", ask=ask, reminder=24 * 3600)
    return f"{decision.by} said {decision.option}" + (f": {decision.comment}" if decision.comment else "")


async def main(port: int, amount: int, *who: str) -> None:
    secret = "only for this example; yours comes from the environment"
    app = Perdure("sqlite:///approval.db", secret=secret, lease=2, webhook_url=f"http://127.0.0.1:{port}/hooks")
    async with app, await asyncio.start_server(lambda r, w: serve(webhooks(app), r, w), "127.0.0.1", port):
        print("serving", flush=True)
        run = await app.start(expense, amount, list(who), id=f"expense:{amount}")
        print(await run.result(), flush=True)


async def serve(hooks: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One HTTP request: the page, or a call of the ASGI application."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        method, path, _ = head[0].split()
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if path.startswith("/approve/"):
            page = PAGE.format(link=html.escape(path.removeprefix("/approve/"), quote=True)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" + page)
        else:
            await call(hooks, writer, method, path, headers, body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass  # not HTTP, or gone
    finally:
        writer.close()


async def call(
    hooks: Any, writer: asyncio.StreamWriter, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        if event["type"] == "http.response.start":
            writer.write(f"HTTP/1.1 {event['status']} -\r\nconnection: close\r\n\r\n".encode())
        else:
            writer.write(event["body"])

    await hooks({"type": "http", "method": method, "path": path, "headers": pairs}, receive, send)


if __name__ == "__main__":
    port, amount, *people = sys.argv[1:]
    asyncio.run(main(int(port), int(amount), *people))
