"""Trips of three bookings each, with an agency that fails at random: every trip is booked whole, or not at all.

    python examples/trip.py agency 8900                       # an HTTP server that forgets nothing, but fails as it likes
    python examples/trip.py travel http://127.0.0.1:8900 20   # from another terminal: twenty customers; kill it as you like
    python examples/trip.py bookings http://127.0.0.1:8900    # what stands at the agency

One request in three fails, half of those after the booking was made, so that only the answer is lost. And some cars are sold
out: then the flight and the hotel are given back. The runs are kept in trips.db, in the current folder; start `travel` again
after a kill, and it goes on.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from perdure import Context, FatalError, Perdure, PerdureError, Undo, cancelled, current_step, step, workflow

# -- the trips --------------------------------------------------------------------------------------------------------


@dataclass
class Wish:
    agency: str
    customer: str
    thing: str


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """One request. Raises what `urlopen` raises; what the agency will never do is fatal."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=5) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            if error.code == 409:
                raise FatalError(error.read().decode(), code="sold_out") from None
            raise ConnectionError(f"the agency answered {error.code}") from None


@step(max_attempts=30, base=0.01, cap=0.1)
def give_back(undo: Undo[Wish, str]) -> None:
    """Cancel a booking. Once more does no harm: the agency knows it by its number."""
    ask(f"{undo.input.agency}/cancel", {"number": undo.output})


# A plain function: it may block, for it runs in a thread. The key is the same for every attempt, so the agency books once.
@step(max_attempts=30, base=0.01, cap=0.1, compensate=give_back)
def book(wish: Wish) -> str:
    if cancelled():
        raise FatalError("nobody wants it any more")
    number: str = ask(f"{wish.agency}/book", asdict(wish) | {"number": current_step().key})["number"]
    return number


@workflow
async def travel(ctx: Context, agency: str, customer: str) -> list[str]:
    return [await ctx.step(book, Wish(agency, customer, thing)) for thing in ("flight", "hotel", "car")]


async def send(agency: str, customers: str) -> None:
    """Book the trips of so many customers, all at once, and say how each went."""
    async with Perdure("sqlite:///trips.db", lease=3) as app:
        names = [f"customer-{number}" for number in range(int(customers))]
        runs = [await app.start(travel, agency, name, id=f"trip:{name}") for name in names]
        ends = await asyncio.gather(*(run.result() for run in runs), return_exceptions=True)
        for name, end in zip(names, ends, strict=True):
            print(f"{name}: {'not booked, ' + str(end.__cause__) if isinstance(end, Exception) else 'booked'}")


# -- the agency -------------------------------------------------------------------------------------------------------


class Agency(BaseHTTPRequestHandler):
    """Books what has not been booked under that number, and cancels; but not always when it is asked to, nor always says so."""

    bookings: dict[str, dict[str, str]] = {}  # noqa: RUF012  (shared on purpose: a handler is made for each request)
    chance = random.Random()

    def do_GET(self) -> None:
        self._answer(200, self.bookings)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        luck = self.chance.random()
        if luck < 1 / 6:
            return self._answer(503, "busy")
        if self.path == "/cancel":
            self.bookings.pop(body["number"], None)
        elif body["thing"] == "car" and body["customer"].endswith(("3", "7")):
            return self._answer(409, "no car left")
        else:
            self.bookings[body["number"]] = body
            print(f"booked a {body['thing']} for {body['customer']}", flush=True)
        if luck < 1 / 3:
            return self._answer(500, "the answer is lost")
        return self._answer(200, {"number": body["number"]})

    def _answer(self, code: int, what: object) -> None:
        data = what.encode() if isinstance(what, str) else json.dumps(what).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """One line a booking is enough."""


async def agency(port: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Agency) as server:
        print(f"the agency listens on http://127.0.0.1:{server.server_port}", flush=True)
        threading.Thread(target=server.serve_forever).start()
        try:
            await asyncio.Event().wait()  # until Ctrl-C
        finally:
            server.shutdown()


async def bookings(url: str) -> None:
    found = await asyncio.to_thread(ask, url)
    for customer, things in sorted(Counter(one["customer"] for one in found.values()).items()):
        print(f"{customer}: {things} bookings")


if __name__ == "__main__":
    commands: dict[str, Callable[..., Coroutine[None, None, None]]]
    commands = {"agency": agency, "travel": send, "bookings": bookings}
    try:
        asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
    except PerdureError as error:
        sys.exit(f"{error.code}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
