"""A TCP proxy that a test can cut, or make as silent as a network that has forgotten a connection."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """In front of `url`'s server, on a loopback port of its own, for as long as an `async with` block. One event loop."""

    def __init__(self, url: str) -> None:
        self._behind = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        #: How many connections were ever made.
        self.made = 0
        self._one_more = asyncio.Event()

    @property
    def url(self) -> str:
        """The same address, by way of the proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = self._behind.netloc.rpartition("@")[0]
        return urlunsplit(self._behind._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def silence(self) -> None:
        """Whatever the connections of now are told goes nowhere, and none of their ends hears of it. New ones work."""
        for pair in self._pairs:
            pair.silent = True

    async def connected(self, number: int) -> None:
        """Wait until so many were made."""
        while self.made < number:
            self._one_more.clear()
            await self._one_more.wait()

    def cut(self) -> None:
        """End the connections of now."""
        for pair in list(self._pairs):
            pair.end()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        self._one_more.set()
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            behind_reader, behind_writer = await asyncio.open_connection(self._behind.hostname, self._behind.port)
            pair.writers.append(behind_writer)
            await asyncio.gather(pair.pump(reader, behind_writer), pair.pump(behind_reader, writer))
        except OSError:
            pass  # either end is gone, or there was none
        finally:
            self._pairs.discard(pair)
            pair.end()


class _Pair:
    """A connection and the one behind it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.silent = False
        self.writers = [writer]

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.silent:
                writer.write(data)
                await writer.drain()
        if not self.silent:
            self.end()

    def end(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()
