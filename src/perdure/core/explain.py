"""What a body is told when something it waited for failed, and what is recorded when the body itself did."""

from __future__ import annotations

from perdure.core.operation import Operation
from perdure.model.errors import ChildFailed, EventTimeout, PerdureError, SignalTimeout, UsageError
from perdure.model.failure import Failure, capture, decode_failure, restore, summary
from perdure.model.history import Op
from perdure.model.messages import Message
from perdure.model.shown import told


def raisable(error: Exception, operation: Operation) -> Exception:
    """The error, or what Python makes of it where it would end a coroutine instead of failing it (PEP 479)."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{operation.op} {operation.name!r} raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def unfit(error: Exception, operation: Operation, run: str) -> Exception:
    """The error of a result that does not fit its hint, told which result of `run` it was."""
    if isinstance(error, UsageError):
        text = f"{told(error)} (in {run}, what came for {operation.op} {operation.name!r} at position {operation.seq})"
        located = type(error)(text)
        located.__cause__ = error.__cause__
        return located
    return raisable(error, operation)


def child_failure(message: Message) -> Failure:
    """Of the child whose unsuccessful end the message tells."""
    inner = decode_failure(message.payload or b"")
    if inner.code == "child_start_failed":
        text, status = f"child {message.name!r} failed to start: {inner.message}", "not started"
    else:
        text, status = f"child {message.name!r} failed: {summary(inner)}", inner.code or "failed"
    error = ChildFailed(text, child_id=message.name, status=status)
    error.__cause__ = restore(inner)
    return capture(error)


def signal_timeout(operation: Operation, run: str) -> SignalTimeout:
    """Of a bounded wait (for a signal, a token or an update) of `run` that is over."""
    key = operation.key
    seconds = ((operation.due or 0) - operation.since) / 1_000_000
    if operation.op is Op.EVENT:
        fitting = "" if operation.payload is None else f" that fits {operation.payload.decode()}"
        what = f"event {operation.name!r}{fitting}"
        message = f"{run} waited {seconds:g} seconds for {what}, and none came"
        return EventTimeout(message, signal=operation.name, timeout=seconds)
    what = f"{'signal' if key is None else key[0]} {(operation.name if key is None else key[1])!r}"
    return SignalTimeout(
        f"{run} waited {seconds:g} seconds for {what}, and none came", signal=operation.name, timeout=seconds
    )


def raised_cancelled(run: str) -> Failure:
    """Of a body that ended in a CancelledError of its own."""
    return capture(PerdureError(f"the body of {run} raised CancelledError, though nobody cancelled the run"))


def swallowed_continue(run: str) -> Failure:
    """Of a body that caught what `continue_as_new` ends it with."""
    return capture(
        UsageError(
            f"{run} called continue_as_new, which ends the body by an exception that is no Exception, and caught that; "
            "let it pass"
        )
    )


def explained(error: BaseException) -> BaseException:
    """The error, with a note where Python's own words do not say what to do in a workflow."""
    if isinstance(error, RuntimeError) and "attached to a different loop" in told(error):
        error.add_note("A workflow body cannot await what belongs to another event loop; put it in a step.")
    return error
