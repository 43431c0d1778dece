"""What the context offers for databases: steps that commit together with what they write."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, Unpack, cast, overload

from perdure.authoring.retry import RetryOptions, with_options
from perdure.authoring.seat import Seat
from perdure.model import values
from perdure.model.databases import check_source
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.policy import RetryPolicy
from perdure.model.shown import shown

T = TypeVar("T")

_PLAIN = RetryPolicy()


class Transaction:
    """What stands in a step's place for a closure: the engine runs `fn` in a transaction on `on`."""

    __slots__ = ("decode", "encode", "fn", "on")

    def __init__(
        self, fn: Callable[[Any], Any], on: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> None:
        self.fn = fn
        #: None: a connection of the store's own driver.
        self.on = on
        self.encode = encode
        self.decode = decode

    def __call__(self) -> NoReturn:
        raise AssertionError("a transaction is run by the engine, which knows on what")


class Transacting(Seat):
    """The part of the context that runs transactions."""

    __slots__ = ()

    @overload
    def transaction(
        self, name: str, fn: Callable[[Any], Any], *, type: type[T], on: Any = ..., **options: Unpack[RetryOptions]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def transaction(
        self, name: str, fn: Callable[[Any], Any], *, type: Any = ..., on: Any = ..., **options: Unpack[RetryOptions]
    ) -> Coroutine[Any, Any, Any]: ...
    def transaction(
        self,
        name: str,
        fn: Callable[[Any], Any],
        *,
        on: Any = None,
        type: Any = Any,
        **options: Unpack[RetryOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn` in a database transaction, exactly once: what it writes is committed together with its result.

        `on` is where connections to the store's own database come from: an engine or session maker of SQLAlchemy, a pool of
        asyncpg or psycopg, or a function that opens a connection (also of `sqlite3`); None: the store's own driver (`sqlite3`
        or asyncpg). `fn` is called with a connection or session in an open transaction, which it does not end; it is a plain
        function, in a thread, where the connection blocks, else an async one. `type` restores the result. What it raises
        rolls back, and is retried as the options say. After a crash that came later than the commit, the result is there.

        Raises `UsageError` where `on` is another database than the store's, or the store has none (in memory).
        """
        what = f"transaction {name!r}"
        check_name(name, "a transaction's name")
        if not callable(fn):
            raise UsageError(f"{what} needs a function to call with a connection, not {shown(fn)}")
        check_source(on, fn, what)
        policy = with_options(_PLAIN, options, what) if options else _PLAIN
        instance = self._inside()

        def encode(result: Any) -> bytes:
            return values.encode(result, type, what=f"result of {what} of {instance.describe()}")

        decode = values.decoder(type)
        call = Transaction(fn, on, encode, decode)
        return cast("Coroutine[Any, Any, Any]", instance.local(name, call, policy=policy, decode=decode, encode=encode))
