# SPDX-License-Identifier: Apache-2.0
"""Whether a call that failed is made again, and when."""

from __future__ import annotations

import random
import time
from typing import Optional

from tessera import _errors
from tessera.client._stop import Stop

_FIRST_WAIT = 0.1
_MAX_WAIT = 10.0
# Retries while the daemon has never answered: a few seconds, after which the
# address is more likely wrong.
_MAX_FIRST_RETRIES = 5


def is_retryable(failure: _errors.Error) -> bool:
    """Whether the same call may succeed if it is made again."""
    return isinstance(failure, _errors.UnavailableError) or (
        isinstance(failure, _errors.ResourceExhaustedError)
        and failure.retry_after is not None
    )


class Backoff:
    """Counts the retries of one call. Waits double, with random jitter so that
    ranks that failed together do not return together, and are never shorter
    than the server asks for.

    Args:
      max_retries: in a row, with nothing arriving in between.
      answered: whether the daemon has ever answered.
      deadline: of time.monotonic(), or None.
    """

    def __init__(
        self,
        max_retries: int,
        answered: bool,
        deadline: Optional[float],
        stop: Stop,
    ):
        self._max_retries = max_retries
        self._answered = answered
        self._deadline = deadline
        self._stop = stop
        self._num_retries = 0

    def reset(self) -> None:
        """Something arrived."""
        self._num_retries = 0
        self._answered = True

    def wait(self, failure: _errors.Error) -> None:
        """Returns when it is time to try again; raises `failure` if it is not
        worth it, and CancelledError after a stop."""
        if self._stop.is_requested():
            raise _errors.CancelledError("stopped")
        if not is_retryable(failure):
            raise failure
        limit = self._max_retries
        if not self._answered:
            limit = min(limit, _MAX_FIRST_RETRIES)
        if self._num_retries >= limit:
            if self._num_retries > 0:
                failure.args = (
                    f"after {self._num_retries} retries: {failure}",
                )
            raise failure
        seconds = min(_FIRST_WAIT * 2**self._num_retries, _MAX_WAIT)
        seconds = max(seconds, failure.retry_after or 0.0)
        seconds *= random.uniform(1.0, 1.5)
        if (
            self._deadline is not None
            and time.monotonic() + seconds > self._deadline
        ):
            raise failure
        self._num_retries += 1
        self._stop.wait(seconds)
        if self._stop.is_requested():
            raise _errors.CancelledError("stopped")
