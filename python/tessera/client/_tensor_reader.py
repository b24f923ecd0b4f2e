# SPDX-License-Identifier: Apache-2.0
"""One request for parts of tensors, spread over several streams."""

from __future__ import annotations

import contextlib
import functools
from typing import Any
from typing import Sequence

from tessera import _arrays
from tessera import _errors
from tessera import _threads
from tessera.client import _layout
from tessera.client import _messages
from tessera.client._channel import Channel
from tessera.client._stop import Stop

# A stream for fewer bytes is not worth the round trips for a connection, and
# the data that the server has read ahead when a range ends is wasted.
_MIN_RANGE_BYTES = 32 << 20


class TensorReader:
    """Reads regions into the caller's memory; each stream reads a byte range
    and resumes where it broke off, in a separate thread. Used once.

    Args:
      request: a ReadTensorsRequest with the parts, which are the regions, and
        the checkpoint's etag.
    """

    def __init__(
        self, channel: Channel, request: Any, regions: Sequence[_arrays.Region]
    ):
        self._channel = channel
        self._request = request
        self._layout = _layout.Layout(regions)
        self._method = _messages.method(
            "tessera.v1.CheckpointService", "ReadTensors"
        )
        self._deadline = channel.deadline(None)
        self._stop = Stop()

    def run(self) -> None:
        size = self._layout.num_bytes
        num_streams = self._channel.options.num_streams
        num_ranges = min(max(size // _MIN_RANGE_BYTES, 1), num_streams)
        ends = [size * (i + 1) // num_ranges for i in range(num_ranges)]
        _threads.run_all(
            [
                functools.partial(self._read_range, begin, end)
                for begin, end in zip([0, *ends], ends)
            ],
            self._stop.request,
        )

    def _read_range(self, begin: int, end: int) -> None:
        """Reads until the whole range has arrived; retries as Backoff says."""
        position = begin
        backoff = self._channel.backoff(self._deadline, self._stop)
        request = type(self._request)()
        request.CopyFrom(self._request)
        while True:
            request.resume_offset = position
            try:
                with contextlib.closing(
                    self._channel.replies(
                        self._method, request, self._deadline, self._stop
                    )
                ) as replies:
                    for position in self._positions(replies, position, end):
                        backoff.reset()
                        if position == end:
                            # The server does not know where a range ends.
                            return
                raise _errors.DataLossError(
                    f"ReadTensors: the stream ended at byte {position} of "
                    f"{self._layout.num_bytes}"
                )
            except _errors.Error as failure:
                backoff.wait(failure)

    def _positions(self, replies: Any, position: int, end: int) -> Any:
        """Takes a stream's messages; yields the progress."""
        header = _layout.Header()
        for reply in replies:
            message = _layout.parse_reply(reply)
            if not isinstance(message, _layout.Chunk):
                header.add(message, len(self._request.parts.parts))
                if header.is_complete:
                    self._check(header)
                continue
            if not header.is_complete:
                raise _errors.DataLossError(
                    "ReadTensors: there is payload before the header"
                )
            position = self._layout.place(message, position, end)
            yield position

    def _check(self, header: _layout.Header) -> None:
        if header.etag != self._request.etag:
            raise _errors.FailedPreconditionError(
                "ReadTensors: the checkpoint was replaced while it was read"
            )
        self._layout.check(header.parts)
