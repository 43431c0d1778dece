"""Perdure: durable execution for Python.

An ordinary async function, its steps checkpointed, survives crashes, deploys and waits of months.
"""

from __future__ import annotations

from perdure.app import Perdure
from perdure.authoring.completed import as_completed
from perdure.authoring.context import ChildHandle, Context
from perdure.authoring.current import CurrentStep, current_step
from perdure.authoring.gating import Singleton
from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.step_ref import step_ref
from perdure.authoring.workflow import workflow
from perdure.engine.events import Lifecycle
from perdure.engine.handle import RunHandle
from perdure.model.errors import (
    ChildFailed,
    DeadlockError,
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
    UsageError,
    ValueTooLarge,
)
from perdure.model.run import Run, Status

__all__ = [
    "ChildFailed",
    "ChildHandle",
    "Context",
    "CurrentStep",
    "DeadlockError",
    "FatalError",
    "ForbiddenInWorkflow",
    "GatherError",
    "InvalidArguments",
    "InvalidId",
    "InvalidValue",
    "Lifecycle",
    "NameTaken",
    "NonDeterminismError",
    "NotInWorkflow",
    "NotRegistered",
    "Perdure",
    "PerdureError",
    "QueueFull",
    "Registry",
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
    "UsageError",
    "ValueTooLarge",
    "as_completed",
    "current_step",
    "step",
    "step_ref",
    "workflow",
]
