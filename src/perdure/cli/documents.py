"""Runs and steps as documents: what `--json` answers. Names stay as they are; times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.cli.text import iso
from perdure.cli.waits import Wait
from perdure.model.failure import Failure, decode_failure
from perdure.model.history import Op
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.model.steplog import LogLine
from perdure.model.steps import Step


def of_run(run: Run, *, whole: bool = False) -> dict[str, Any]:
    """A run; `whole` with its input, output, attributes and all of its error."""
    document: dict[str, Any] = {
        "id": run.id,
        "incarnation": run.incarnation,
        "workflow": run.workflow,
        "version": run.version,
        "namespace": run.namespace,
        "status": run.status,
        "priority": run.priority,
        "tags": run.tags,
        "origin": run.origin,
        "parent": None if run.parent is None else {"id": run.parent.id, "seq": run.parent.seq},
        "continued_to": run.continued_to,
        "recoveries": run.recoveries,
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "updated_at": iso(run.updated_at),
        "ended_at": iso(run.ended_at),
        "wake_at": iso(run.wake_at),
        "paused_at": iso(run.paused_at),
        "deadline": iso(run.deadline),
        "error": _error(run.error, whole=whole),
    }
    if whole:
        document |= {
            "owner": run.owner,
            "input": value(run.input),
            "output": value(run.output),
            "attributes": value(run.attributes),
        }
    return document


def of_step(step: Step) -> dict[str, Any]:
    """One operation of a run."""
    is_token = step.op is Op.SIGNAL and step.input is not None
    return {
        "seq": step.seq,
        "kind": step.op,
        "name": step.name,
        "state": step.state,
        "token": (step.input or b"").decode("utf-8", "replace") if is_token else None,
        "attempts": step.attempts,
        "cut": step.cut,
        "issued_at": iso(step.issued_at),
        "began_at": iso(step.began_at),
        "ended_at": iso(step.ended_at),
        "due": iso(step.due),
        "input": None if is_token else value(step.input),
        "output": value(step.output),
        "error": _error(step.error, whole=True),
        "log": [of_line(line) for line in step.log],
        "progress": None if step.progress is None else value(bytes(step.progress.value)),
    }


def of_line(line: LogLine) -> dict[str, Any]:
    """A line of a step's log."""
    document: dict[str, Any] = {
        "at": iso(line.at),
        "level": line.level,
        "message": line.message,
        "attempt": line.attempt,
    }
    if line.process is not None:
        document |= {"process": line.process, "outcome": line.outcome, "took_ms": (line.took or 0) / 1000}
    return document


def of_wait(wait: Wait) -> dict[str, Any]:
    """Something that a run waits for."""
    return {
        "what": wait.what,
        "name": wait.name,
        "since": iso(wait.since),
        "until": iso(wait.until),
        "detail": wait.detail,
    }


def of_message(message: Message) -> dict[str, Any]:
    """A message that lies unread in a run's inbox."""
    return {"kind": message.kind, "name": message.name, "token": message.token, "at": iso(message.at)}


def value(data: bytes | None) -> Any:
    """The value of stored JSON. What cannot be read becomes a marker that says so: one bad row must not hide the others."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return {"unreadable": str(error), "begins": data[:100].decode("utf-8", "replace")}


def _error(data: bytes | None, *, whole: bool) -> dict[str, Any] | None:
    return None if data is None else _failure(decode_failure(data), whole=whole)


def _failure(failure: Failure, *, whole: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"type": failure.type, "message": failure.message, "code": failure.code}
    if whole:
        document |= {
            "details": failure.details,
            "cause": None if failure.cause is None else _failure(failure.cause, whole=True),
            "group": [_failure(member, whole=True) for member in failure.group],
            "traceback": failure.traceback,
        }
    return document
