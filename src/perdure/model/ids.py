"""Ids and names: what may be one, and how derived ids are made. Derived ids are deterministic, so that a crash between
deciding and writing ends in the same row."""

from __future__ import annotations

import re

from perdure.model.errors import InvalidId

#: Characters.
MAX_RUN_ID = 512
MAX_NAME = 255
#: Bytes in UTF-8: three names together must fit into a row of a store's index.
MAX_NAME_BYTES = 800

_DERIVED = re.compile(r"(?:\.child\.\d+|\.all\.\d+\.\d+|~\d+|~(?:retry|fork)~[a-f][0-9a-f]{7})+\Z")
_LINK = re.compile(r"^(.*)~(\d+)$", re.DOTALL)


def _check(text: object, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidId(f"{what} must be a string, not {type(text).__name__}")
    if not text.strip():
        raise InvalidId(f"{what} is empty; give one with at least one visible character")
    if len(text) > limit:
        raise InvalidId(f"{what} has {len(text)} characters, more than the {limit} allowed: {text[:40]!r}...")
    if not text.isprintable():
        # Covers NUL, line breaks, lone surrogates: what some store, log or page could not carry.
        raise InvalidId(f"{what} {text!r} holds characters that are not printable")
    return text


def check_run_id(text: object) -> str:
    """The id itself; raises `InvalidId`."""
    return _check(text, "a run id", MAX_RUN_ID)


def check_known_id(text: object) -> str:
    """The id of a run that may exist: those of children and links go on from their parent's, and so are longer.

    Raises `InvalidId`.
    """
    if isinstance(text, str) and len(text) > MAX_RUN_ID:
        check_run_id(_DERIVED.sub("", text))
        return text
    return check_run_id(text)


def check_name(text: object, what: str = "a name") -> str:
    """The name itself; raises `InvalidId`."""
    name = _check(text, what, MAX_NAME)
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise InvalidId(f"{what} has {size} bytes as UTF-8, more than the {MAX_NAME_BYTES} allowed: {name[:40]!r}...")
    return name


def child_id(parent: str, seq: int) -> str:
    """Of the child that operation `seq` starts."""
    return f"{parent}.child.{seq}"


def fan_id(parent: str, first: int, index: int) -> str:
    """Of child `index` of a fan (`ctx.all`) whose first operation is `first`."""
    return f"{parent}.all.{first}.{index}"


def next_link(run_id: str) -> str:
    """Of the run that continues `run_id`: `p`, `p~1`, `p~2`."""
    match = _LINK.match(run_id)
    return f"{match[1]}~{int(match[2]) + 1}" if match else f"{run_id}~1"


def again_id(run_id: str, how: str, chance: int) -> str:
    """Of a run that is made from another by an operator: `p~retry~` or `p~fork~` and eight hex digits of 32 bits of chance.

    The first is a letter: `next_link` must not take them for a number.
    """
    digits = f"{chance % 2**32:08x}"
    return f"{run_id}~{how}~{'abcdef'[int(digits[0], 16) % 6]}{digits[1:]}"


def step_id(run_id: str, incarnation: int, seq: int) -> str:
    """The idempotency key of a step: the same for every attempt and every requeue, never again for another step."""
    return f"{run_id}:{incarnation}:{seq}"
