"""Updates: messages that are answered. What they carry, what an answer is, and under which key of its run it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from perdure.model.errors import InvalidArguments
from perdure.model.failure import decode_failure, restore

T_co = TypeVar("T_co", covariant=True)


class Asked(Struct, frozen=True, omit_defaults=True):
    """An update's payload."""

    #: Names the update for ever: sending the same id to the same run again asks once, and gives the same answer.
    id: str
    arg: Raw = Raw(b"null")
    #: A token to send the answer to, in place of keeping it: for a workflow that waits.
    reply: str | None = None


class Answered(Struct, frozen=True, omit_defaults=True):
    """An answer, as its run keeps it: `rejected` is why not, `failure` what went wrong."""

    answer: Raw = Raw(b"null")
    rejected: str | None = None
    failure: Raw = Raw(b"null")

    @property
    def error(self) -> Exception | None:
        """What it was answered with, if that is an error."""
        data = bytes(self.failure)
        return None if data == b"null" else restore(decode_failure(data))


@dataclass(frozen=True)
class Accepted(Generic[T_co]):
    """An update that its run has taken, or will take. True in conditions."""

    id: str
    #: What the workflow answered, if the answer was waited for; else None.
    answer: T_co

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True)
class Rejected:
    """An update that was not accepted, and why. False in conditions."""

    reason: str

    def __bool__(self) -> Literal[False]:
        return False


Outcome: TypeAlias = Accepted[Any] | Rejected

_encode = msgspec.json.Encoder().encode
decode_asked = msgspec.json.Decoder(Asked).decode
decode_answered = msgspec.json.Decoder(Answered).decode


def encode_asked(update_id: str, arg: bytes, reply: str | None = None) -> bytes:
    """The payload of an update with this argument (JSON)."""
    return _encode(Asked(update_id, Raw(arg), reply))


def encode_answer(answer: bytes) -> bytes:
    """What is kept of an answer (JSON)."""
    return _encode(Answered(Raw(answer)))


def encode_rejection(reason: str) -> bytes:
    """What is kept of a rejection."""
    return _encode(Answered(rejected=reason))


def encode_error(failure: bytes) -> bytes:
    """What is kept of an error (a `Failure`, as it is stored)."""
    return _encode(Answered(failure=Raw(failure)))


def opened(data: bytes) -> bytes:
    """The answer (JSON) in what was kept or sent. Raises the error that it was answered with; `InvalidArguments` for one that
    was rejected."""
    told = decode_answered(data)
    if told.error is not None:
        raise told.error
    if told.rejected is not None:
        raise InvalidArguments(told.rejected)
    return bytes(told.answer)


def answer_key(update_id: str) -> str:
    """The key of the value under which the answer to an update is kept."""
    return f"update:{update_id}"
