"""What of CPython's tests is not run on the workflow loop, and why: by module, then by `Class.test`."""

from __future__ import annotations

AS_COMPLETED = "as_completed over coroutines is refused: its order would be by address (FAULTS F47; see test_loop.py)"
DEBUG = "there is no debug mode, so no traceback of where a future was made"
QUIET = "the loop logs nothing: errors that nobody retrieved are the body's own business"
KEEPS = "the loop keeps its tasks alive: none is destroyed while it is pending"
OWN_TASKS = "the loop makes its own tasks and takes no factory"
THREADS = "futures of threads do not reach into a workflow"
GENERATORS = "generators end with the body: there is no shutdown whose errors somebody could be told"
BASE_LOOP = "looks into asyncio's BaseEventLoop"

EXCLUDED: dict[str, dict[str, str]] = {
    "test_asyncio.test_tasks": {
        "WorkflowBaseTaskTests.test_as_completed": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_concurrent": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_coroutine_use_running_loop": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_duplicate_coroutines": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_resume_iterator": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_reverse_wait": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_same_tasks_in_as_out": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_as_completed_with_unused_timeout": AS_COMPLETED,
        "WorkflowBaseTaskTests.test_bare_create_task": OWN_TASKS,
        "WorkflowBaseTaskTests.test_error_in_call_soon": QUIET,
        "WorkflowBaseTaskTests.test_log_destroyed_pending_task": KEEPS,
        "WorkflowBaseTaskTests.test_task_source_traceback": DEBUG,
        "CoroutineGatherTests.test_issue46672": BASE_LOOP,
    },
    "test_asyncio.test_futures": {
        "WorkflowBaseFutureTests.test_future_exception_never_retrieved": QUIET,
        "WorkflowBaseFutureTests.test_future_exception_never_retrieved_debug": QUIET,
        "WorkflowBaseFutureTests.test_tb_logger_exception_unretrieved": QUIET,
        "WorkflowBaseFutureTests.test_future_source_traceback": DEBUG,
        "WorkflowBaseFutureTests.test_future_repr": DEBUG,
        "WorkflowBaseFutureTests.test_wrap_future": THREADS,
    },
    "test_asyncgen": {
        "AsyncGenAsyncioTest.test_async_gen_asyncio_shutdown_exception_01": GENERATORS,
        "AsyncGenAsyncioTest.test_async_gen_asyncio_shutdown_exception_02": GENERATORS,
    },
}
