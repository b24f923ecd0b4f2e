# SPDX-License-Identifier: Apache-2.0
"""Stop: how one thread ends the calls and the waits of others."""

from __future__ import annotations

import threading
from typing import Any
from typing import Set


class Stop:
    """Ends calls and waits from another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._calls: Set[Any] = set()

    def request(self) -> None:
        self._event.set()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def is_requested(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Waits for so long, or until the request."""
        self._event.wait(seconds)

    def add(self, call: Any) -> None:
        with self._lock:
            self._calls.add(call)
        if self._event.is_set():
            call.cancel()

    def remove(self, call: Any) -> None:
        with self._lock:
            self._calls.discard(call)
