"""How a worker is told to stop: the first SIGTERM or SIGINT drains, the second gives up at once; and the end
of standard input, for those whose parent sees to them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(first: Callable[[], None], second: Callable[[], None] | None = None) -> Generator[None]:
    """Inside, the first of the signals calls `first` (between two bytecodes of the main thread: it must do next to nothing),
    the second calls `second` and ends the process. Handlers exist in the main thread only; in another this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            # Not through logging or exit handlers: whatever hangs there must not keep us.
            os.write(2, b"perdure: giving up at once; what ran here is recovered when its lease has run out\n")
            if second is not None:
                second()
            os._exit(128 + number)
        told = True
        first()

    before: dict[signal.Signals, Any] = {}
    try:
        for number in SIGNALS:
            before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def await_eof(told: Callable[[], None]) -> None:
    """Call `told` when standard input has ended. Blocks until then."""
    # Past sys.stdin: its lock, held by a daemon thread, would break the interpreter's end.
    while os.read(0, 4096):
        pass
    try:
        told()
    except RuntimeError:
        pass  # The loop is closed: we have stopped already.
