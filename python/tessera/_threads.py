# SPDX-License-Identifier: Apache-2.0
"""Calls that end early on Ctrl-C, or on any signal with a handler that raises.

Python handles signals in the main thread, between Python instructions. A call
that blocks there keeps them waiting, so another thread makes it.
"""

from __future__ import annotations

import queue
import threading
from typing import Any
from typing import Callable
from typing import Iterator
from typing import List
from typing import Sequence

# A signal does not end a wait when it arrives just before the system call. So
# each wait here ends by itself and begins again.
_LOOK_SECONDS = 0.1


class _Call:
    """A call in a separate thread."""

    def __init__(
        self, work: Callable[[], Any], fail: Callable[[BaseException], None]
    ):
        self.ended = threading.Event()
        self.result: Any = None
        self._work = work
        self._fail = fail
        self._begun = threading.Lock()  # held once it began or was cancelled

    def start(self) -> None:
        try:
            threading.Thread(
                target=self._run, name="tessera", daemon=True
            ).start()
        except RuntimeError:
            # An isolated subinterpreter has neither threads nor signals.
            self._run()

    def cancel(self) -> None:
        """Ends the call unless it has begun."""
        if self._begun.acquire(blocking=False):
            self.ended.set()

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            self.result = self._work()
        except BaseException as failure:  # raised by run_all
            self._fail(failure)
        finally:
            self.ended.set()


def run_all(
    works: Sequence[Callable[[], Any]], request_stop: Callable[[], None]
) -> List[Any]:
    """Calls each of `works` in a separate thread, and returns the results.

    Returns or raises once all have ended, because they may use the caller's
    memory. Raises the first exception, from a call or a signal handler, and
    calls `request_stop` in any thread, perhaps more than once, to end the
    others.
    """
    if (
        len(works) == 1
        and threading.current_thread() is not threading.main_thread()
    ):
        return [works[0]()]
    failures: List[BaseException] = []

    def fail(failure: BaseException) -> None:
        failures.append(failure)
        request_stop()

    calls = [_Call(work, fail) for work in works]
    try:
        for call in calls:
            call.start()
    except BaseException as failure:
        failures.append(failure)
    # Not Thread.join, which treats a thread as ended when it is interrupted.
    while True:
        try:
            if failures:
                request_stop()
                for call in calls:
                    call.cancel()
            while not all(call.ended.wait(_LOOK_SECONDS) for call in calls):
                pass
            break
        except BaseException as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    return [call.result for call in calls]


class Lines:
    """Iterates over the lines of a text stream, which another thread reads to
    the end and closes. A signal interrupts the wait for a line.
    """

    def __init__(self, stream: Any):
        self._read: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(
            target=self._run, args=(stream,), name="tessera", daemon=True
        ).start()

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                line = self._read.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if line is None:
                return
            yield line

    def _run(self, stream: Any) -> None:
        try:
            with stream:
                for line in stream:
                    self._read.put(line)
        finally:
            self._read.put(None)
