"""How a call types the inputs of a workflow and keeps its own keywords: one overload for each number of positional inputs.

A type checker cannot be told "the positional parameters of P, and then my own keywords". These protocols can: whatever may
be run with two inputs is a `Takes2`, also where it has more with defaults. A method that takes a workflow is written so:

    @overload
    async def start(self, workflow: Takes0[R], /, **options: Unpack[StartKeywords]) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: Takes1[A, R], a: A, /, **options: Unpack[StartKeywords]) -> RunHandle[R]: ...
    ...and so on to Takes5, then by name:
    @overload
    async def start(self, workflow: str, /, *inputs: Any, **options: Unpack[StartKeywords]) -> RunHandle[Any]: ...
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)
E_contra = TypeVar("E_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Takes0(Protocol[R_co]):
    """A workflow, with options or without, that can be run without input."""

    def run(self) -> Coroutine[Any, Any, R_co]: ...


class Takes1(Protocol[A_contra, R_co]):
    """...with one positional input."""

    def run(self, a: A_contra, /) -> Coroutine[Any, Any, R_co]: ...


class Takes2(Protocol[A_contra, B_contra, R_co]):
    """...with two."""

    def run(self, a: A_contra, b: B_contra, /) -> Coroutine[Any, Any, R_co]: ...


class Takes3(Protocol[A_contra, B_contra, C_contra, R_co]):
    """...with three."""

    def run(self, a: A_contra, b: B_contra, c: C_contra, /) -> Coroutine[Any, Any, R_co]: ...


class Takes4(Protocol[A_contra, B_contra, C_contra, D_contra, R_co]):
    """...with four."""

    def run(self, a: A_contra, b: B_contra, c: C_contra, d: D_contra, /) -> Coroutine[Any, Any, R_co]: ...


class Takes5(Protocol[A_contra, B_contra, C_contra, D_contra, E_contra, R_co]):
    """...with five."""

    def run(self, a: A_contra, b: B_contra, c: C_contra, d: D_contra, e: E_contra, /) -> Coroutine[Any, Any, R_co]: ...
