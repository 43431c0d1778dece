"""Perdure: durable execution for Python.

An ordinary async function, its steps checkpointed, survives crashes, deploys and waits of months.
"""

from __future__ import annotations

from perdure.app import Perdure
from perdure.authoring.completed import as_completed
from perdure.authoring.context import ChildHandle, Context
from perdure.authoring.current import CurrentStep, cancelled, current_step
from perdure.authoring.gating import Singleton
from perdure.authoring.log import log, logging_filter
from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.step_ref import step_ref
from perdure.authoring.stream import StreamWriter, stream
from perdure.authoring.updates import Update
from perdure.authoring.workflow import workflow
from perdure.engine.around import Proceed
from perdure.engine.cancelling import CancelResult
from perdure.engine.events import Lifecycle
from perdure.engine.handle import RunHandle
from perdure.engine.reading import Chunk, Stream
from perdure.model.conditions import attr
from perdure.model.errors import (
    ChildFailed,
    CompensationTimeout,
    DeadlockError,
    EventTimeout,
    FatalError,
    ForbiddenInWorkflow,
    GatherError,
    InvalidArguments,
    InvalidId,
    InvalidValue,
    NameTaken,
    NonDeterminismError,
    NotInWorkflow,
    NotRegistered,
    PerdureError,
    QueueFull,
    RunCancelled,
    RunDead,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    RunUnsuccessful,
    SignalTimeout,
    StepFailed,
    StepTimeout,
    StoreError,
    StoreMismatch,
    StoreUnavailable,
    UnknownQuery,
    UsageError,
    ValueTooLarge,
)
from perdure.model.run import Run, Status
from perdure.model.steplog import LogLine
from perdure.model.undo import Undo
from perdure.model.updates import Accepted, Rejected
from perdure.patterns.accumulate import Batch, Debounce

__all__ = [
    "Accepted",
    "Batch",
    "CancelResult",
    "ChildFailed",
    "ChildHandle",
    "Chunk",
    "CompensationTimeout",
    "Context",
    "CurrentStep",
    "DeadlockError",
    "Debounce",
    "EventTimeout",
    "FatalError",
    "ForbiddenInWorkflow",
    "GatherError",
    "InvalidArguments",
    "InvalidId",
    "InvalidValue",
    "Lifecycle",
    "LogLine",
    "NameTaken",
    "NonDeterminismError",
    "NotInWorkflow",
    "NotRegistered",
    "Perdure",
    "PerdureError",
    "Proceed",
    "QueueFull",
    "Registry",
    "Rejected",
    "Run",
    "RunCancelled",
    "RunDead",
    "RunEnded",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunTimedOut",
    "RunUnsuccessful",
    "SignalTimeout",
    "Singleton",
    "Status",
    "StepFailed",
    "StepTimeout",
    "StoreError",
    "StoreMismatch",
    "StoreUnavailable",
    "Stream",
    "StreamWriter",
    "Undo",
    "UnknownQuery",
    "Update",
    "UsageError",
    "ValueTooLarge",
    "as_completed",
    "attr",
    "cancelled",
    "current_step",
    "log",
    "logging_filter",
    "step",
    "step_ref",
    "stream",
    "workflow",
]
