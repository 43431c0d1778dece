"""Steps by name: for those whose code lives elsewhere, perhaps in another language."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from perdure.authoring.compensation import CanUndo, Compensation, StepOptions, undo_of, with_step_options
from perdure.authoring.gating import QueueUse
from perdure.authoring.issuing import bound, issue
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.model.errors import InvalidArguments, InvalidValue, NotInWorkflow, UsageError
from perdure.model.ids import check_name
from perdure.model.policy import RetryPolicy
from perdure.model.values import check_hint, decode, encode

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)  # As in `step`.


@dataclass(frozen=True, eq=False)
class StepRef(CanUndo, Generic[R_co]):
    """A step known by its name, and by the type of its result."""

    name: str
    result: Any
    policy: RetryPolicy
    queue: QueueUse | None = None
    compensation: Compensation | None = None

    def using(self, **options: Unpack[StepOptions]) -> Self:
        """The same reference with these options in place of its own, one by one."""
        policy, queue, undone = with_step_options(self.policy, self.queue, self.compensation, options, f"{self}.using")
        return replace(self, policy=policy, queue=queue, compensation=undone)

    def as_undo(self, owner: str) -> tuple[str, RetryPolicy]:
        return self.name, self.policy  # what it takes is not known here

    if TYPE_CHECKING:
        # As in `AsyncStep`.
        async def __call__(self, *input: Any, **fields: Any) -> R_co: ...

    else:

        def __call__(self, *input: Any, **fields: Any) -> Any:
            """Issue the step now, in a workflow: with one input, or with an object of the keywords, or with nothing.

            Raises `NotInWorkflow` elsewhere: there is no function here to call.
            """
            instance = current()
            if instance is None:
                raise NotInWorkflow(
                    f"{self} is only a name here; call it in a workflow, or call its function where it is"
                )
            return self.issue(instance, input, fields)

    def issue(self, instance: Instance, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, R_co]:
        """As `StepDefinition.issue`."""
        undo = undo_of(instance, self.name, self.compensation)
        data = bound(instance, lambda: self.bind(args, kwargs))
        return issue(instance, self.name, data, self.policy, self.queue, self.decode_result, undo)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The input that these arguments make. Raises `InvalidArguments` and `InvalidValue`."""
        if len(args) > 1 or (args and kwargs):
            raise InvalidArguments(
                f"{self} takes one input, or keywords for an object of them, not {len(args)} positional "
                f"argument{'s' * (len(args) != 1)} and {len(kwargs)} keywords: its parameters are not known here"
            )
        value = args[0] if args else dict(kwargs) if kwargs else None
        return encode(value, what=f"the input of {self}")

    def decode_result(self, data: bytes) -> R_co:
        """The step's result, restored. Raises `InvalidValue`."""
        restored: R_co = decode(data, self.result, what=f"the result of {self}")
        return restored

    def __str__(self) -> str:
        return f"step {self.name!r}"


@overload
def step_ref(name: str, *, type: type[R], **options: Unpack[StepOptions]) -> StepRef[R]: ...
@overload
def step_ref(name: str, *, type: Any = ..., **options: Unpack[StepOptions]) -> StepRef[Any]: ...
def step_ref(name: str, *, type: Any = Any, **options: Unpack[StepOptions]) -> StepRef[Any]:
    """A reference to the step `name`, whose result is restored as `type`. Options as in `@step`."""
    check_name(name, "the name of a step")
    try:
        check_hint(type, f"the result of step {name!r}")
    except InvalidValue as error:
        raise UsageError(str(error)) from error
    owner = f"step_ref({name!r})"
    return StepRef(name, type, *with_step_options(RetryPolicy(), None, None, options, owner))
