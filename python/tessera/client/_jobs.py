# SPDX-License-Identifier: Apache-2.0
"""Jobs on a daemon: they outlive the call that starts them, and the daemon."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
import uuid
from typing import Any
from typing import cast
from typing import Dict
from typing import Generic
from typing import Iterator
from typing import List
from typing import Optional
from typing import TypeVar

from tessera import _errors
from tessera.client import _messages
from tessera.client import _results
from tessera.client import _status
from tessera.client._channel import Channel
from tessera.client._requests import make_request
from tessera.client._stop import Stop

_JOBS = "tessera.v1.JobService"
_OPERATIONS = "google.longrunning.Operations"
# The limit for one WaitOperation: the server answers after it, done or not, so
# that a connection that died silently is noticed.
_WAIT_SECONDS = 60
# How many times a list is begun again because the server was restarted between
# two pages.
_MAX_LIST_RESTARTS = 5


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """A job's state and progress at one time.

    Attributes:
      name: "operations/...", or "" for a plan.
      kind: "convert", "reshard", "consolidate" or "verify"; "" for a plan.
      state: "pending", "planning", "running", "finishing", "succeeded",
        "failed" or "cancelled"; "" for a plan.
      bytes_per_second: over the last few seconds.
      eta_seconds: None while that is not known.
      client: the client that submitted the job.
      done: whether it has ended; then one of the next two is set.
      error: how it failed.
      result: the job's result.
    """

    name: str
    kind: str
    state: str
    source: str
    destination: str
    create_time: Optional[datetime.datetime]
    start_time: Optional[datetime.datetime]
    end_time: Optional[datetime.datetime]
    done_files: int
    total_files: int
    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    eta_seconds: Optional[float]
    memory_bytes: int
    num_restarts: int
    client: str
    done: bool
    error: Optional[_errors.Error]
    result: Optional[_results.Result]


def _time(metadata: Any, field: str) -> Optional[datetime.datetime]:
    if not metadata.HasField(field):
        return None
    stamp = getattr(metadata, field)
    try:
        return datetime.datetime.fromtimestamp(
            stamp.seconds + stamp.nanos / 1e9, datetime.timezone.utc
        )
    except (OverflowError, OSError, ValueError):
        return None


def _word(metadata: Any, field: str) -> str:
    number = getattr(metadata, field)
    if number == 0:
        return ""
    return _messages.enum_word(type(metadata), field, number).lower()


def make_status(operation: Any) -> JobStatus:
    """DataLossError if the google.longrunning.Operation is not a job."""

    def malformed(what: str) -> _errors.Error:
        return _errors.DataLossError(f"operation {operation.name!r} {what}")

    metadata = _messages.message("JobMetadata")()
    if operation.HasField("metadata"):
        metadata = _messages.unpack(operation.metadata, "JobMetadata")
        if metadata is None:
            raise malformed("is not a job's")
    kind = _messages.enum_word(type(metadata), "kind", metadata.kind)
    error, result = None, None
    if operation.done and operation.HasField("error"):
        if operation.error.code == 0:
            raise malformed("has an error without a code")
        error = _status.error_of_status(operation.error, kind)
    elif operation.done:
        result = _results.parse_result(operation.response)
        if result is None:
            raise malformed(
                "ended without a result of a kind that this client knows"
            )
    left = metadata.remaining
    return JobStatus(
        name=operation.name,
        kind=_word(metadata, "kind"),
        state=_word(metadata, "state"),
        source=metadata.source,
        destination=metadata.destination,
        create_time=_time(metadata, "create_time"),
        start_time=_time(metadata, "start_time"),
        end_time=_time(metadata, "end_time"),
        done_files=metadata.files_done,
        total_files=metadata.files_total,
        done_bytes=metadata.bytes_done,
        total_bytes=metadata.bytes_total,
        bytes_per_second=metadata.bytes_per_second,
        eta_seconds=left.seconds + left.nanos / 1e9
        if metadata.HasField("remaining")
        else None,
        memory_bytes=metadata.memory_bytes,
        num_restarts=metadata.num_restarts,
        client=metadata.client,
        done=operation.done,
        error=error,
        result=result,
    )


R = TypeVar("R", bound=_results.Result)


class Job(Generic[R]):
    """A job, and the last status. Any thread.

    Calls take a `timeout` in seconds, by default the one in ClientOptions.
    Ctrl-C ends a call, but not the job.

    Attributes:
      name: "operations/..."; "" for a plan, which is done.
      status: as of the last call.
    """

    def __init__(self, channel: Channel, status: JobStatus):
        self._channel = channel
        self.name = status.name
        self.status = status

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {self.status.kind}, {self.status.state})"

    def refresh(self, timeout: Optional[float] = None) -> JobStatus:
        """Asks the daemon for the job's status."""
        return self._update("GetOperation", {"name": self.name}, timeout)

    def wait(self, timeout: Optional[float] = None) -> R:
        """Waits until the job has ended, and returns its result.

        Raises:
          tessera.Error: in the subclass for the job's failure, such as
            CancelledError; DeadlineExceededError if it has not ended in time.
        """
        deadline = self._channel.deadline(timeout)
        while not self.status.done:
            left = _left(deadline, "WaitOperation")
            seconds = _WAIT_SECONDS if left is None else left
            request = {
                "name": self.name,
                "timeout": {"seconds": min(int(seconds) + 1, _WAIT_SECONDS)},
            }
            self._update("WaitOperation", request, left)
        return self._result()

    def watch(self, timeout: Optional[float] = None) -> Iterator[JobStatus]:
        """Yields the status now, on changes at most once a second, and when the
        job has ended. Continues after the connection broke.

        `status.error` says how the job failed; call wait() to have it raised.
        """
        if self.status.done:
            yield self.status
        method = _messages.method(_JOBS, "WatchJob")
        request = _messages.message("WatchJobRequest")(name=self.name)
        deadline = self._channel.deadline(timeout)
        stop = Stop()
        backoff = self._channel.backoff(deadline, stop)
        while not self.status.done:
            try:
                with contextlib.closing(
                    self._channel.replies(method, request, deadline, stop)
                ) as replies:
                    for reply in replies:
                        backoff.reset()
                        operation = _messages.parse(
                            method.reply, reply, method.name
                        )
                        self.status = make_status(operation)
                        yield self.status
                        if self.status.done:
                            return
                raise _errors.UnavailableError(
                    "WatchJob: the stream ended before the job did"
                )
            except _errors.Error as failure:
                backoff.wait(failure)

    def cancel(self, timeout: Optional[float] = None) -> None:
        """Asks the job to stop: it ends cancelled unless it finishes first."""
        self._call("CancelOperation", {"name": self.name}, timeout)

    def delete(self, timeout: Optional[float] = None) -> None:
        """Lets the daemon forget a job that is done."""
        self._call("DeleteOperation", {"name": self.name}, timeout)

    def _result(self) -> R:
        if self.status.error is not None:
            raise self.status.error
        assert self.status.result is not None
        return cast(R, self.status.result)

    def _call(
        self, method: str, request: Dict[str, Any], timeout: Optional[float]
    ) -> Any:
        return operation_call(self._channel, method, request, timeout)

    def _update(
        self, method: str, request: Dict[str, Any], timeout: Optional[float]
    ) -> JobStatus:
        self.status = make_status(self._call(method, request, timeout))
        return self.status


def _left(deadline: Optional[float], call: str) -> Optional[float]:
    """Seconds until the deadline."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise _errors.DeadlineExceededError(f"{call}: Deadline Exceeded")
    return left


def operation_call(
    channel: Channel,
    method: str,
    request: Dict[str, Any],
    timeout: Optional[float],
) -> Any:
    """Calls a method in google.longrunning.Operations."""
    request_class = _messages.message(f"google.longrunning.{method}Request")
    return channel.call(
        _messages.method(_OPERATIONS, method), request_class(**request), timeout
    )


def submit(
    channel: Channel,
    method: str,
    keywords: Dict[str, Any],
    timeout: Optional[float],
) -> Job[Any]:
    """Starts a job under a request id, so that a retry never starts it
    twice."""
    request = make_request(f"{method}Request", keywords)
    if not request.options.request_id:
        request.options.request_id = str(uuid.uuid4())
    operation = channel.call(_messages.method(_JOBS, method), request, timeout)
    return Job(channel, make_status(operation))


def list_jobs(
    channel: Channel, filter_: str, timeout: Optional[float]
) -> List[Job[Any]]:
    """The jobs on all pages, which are read again from the first one if the
    server was restarted."""
    deadline = channel.deadline(timeout)
    jobs: List[Job[Any]] = []
    token, num_restarts = "", 0
    while True:
        try:
            page = operation_call(
                channel,
                "ListOperations",
                {"name": "operations", "filter": filter_, "page_token": token},
                _left(deadline, "ListOperations"),
            )
        except _errors.InvalidArgumentError as failure:
            num_restarts += 1
            if (
                not token
                or failure.reason != "INVALID_PAGE_TOKEN"
                or num_restarts > _MAX_LIST_RESTARTS
            ):
                raise
            jobs, token = [], ""
            continue
        jobs += [Job(channel, make_status(each)) for each in page.operations]
        if not page.next_page_token:
            return jobs
        if page.next_page_token == token:
            raise _errors.DataLossError(
                "ListOperations: the server sent the same page twice"
            )
        token = page.next_page_token
