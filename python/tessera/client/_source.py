# SPDX-License-Identifier: Apache-2.0
"""A checkpoint on a daemon, as tessera.Checkpoint reads from it."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any
from typing import Dict
from typing import Iterator
from typing import List
from typing import Optional
from typing import Sequence
from typing import Tuple

from tessera import _arrays
from tessera import _errors
from tessera import _files
from tessera.client import _messages
from tessera.client import _pickles
from tessera.client import _results
from tessera.client._channel import Channel
from tessera.client._channel import ClientOptions
from tessera.client._tensor_reader import TensorReader
from tessera.client._url import join_url
from tessera.client._url import parse_url

_SERVICE = "tessera.v1.CheckpointService"
# Equals the daemon's own limit on the metadata that it reads.
_MAX_METADATA_BYTES = 1 << 30
# The same for the objects in one request.
_MAX_OBJECT_BYTES = 1 << 30
# The most bytes that the parts in one request take; a server accepts 4 MiB by
# default.
_MAX_REQUEST_BYTES = 1 << 20
# Names in one request for objects; a server accepts a thousand.
_MAX_NAMES = 500
# The bytes that a stream may have in flight: a message in gRPC, one that is
# being placed, and the connection's windows.
_MESSAGES_IN_FLIGHT = 4
_MIN_MESSAGE_BYTES = 1 << 10
_MAX_MESSAGE_BYTES = 1 << 20


class DaemonSource:
    """Takes the place of a FileSource; any thread.

    The index comes first, and every later answer must have the same etag: a
    checkpoint that is replaced is a FailedPreconditionError, and two never mix.

    Args:
      path: the path on the daemon.
      url: the checkpoint's name here; it also says that the connection belongs
        to this checkpoint, and is closed with it.
    """

    def __init__(self, channel: Channel, path: str, url: Optional[str] = None):
        self._channel = channel
        self._path = path
        self._url = url or join_url(channel.address, path)
        self._owns_channel = url is not None
        self._is_closed = False
        self._etag = ""
        self._places: Dict[str, Tuple[int, int]] = {}

    @classmethod
    def at(cls, url: str, options: ClientOptions) -> DaemonSource:
        """That of a tessera:// URL, with a connection of its own."""
        address, path = parse_url(url)
        return cls(Channel(address, options), path, url)

    def __reduce__(self) -> Tuple[Any, ...]:
        return DaemonSource.at, (self._url, self._channel.options)

    def describe(self) -> Dict[str, Any]:
        """Reads the index. It comes in DCP's form for every format, and the
        core reads it: nothing in it is trusted."""
        head = self._inspect()
        self._etag = head.etag
        replies = self._channel.collect(
            _messages.method(_SERVICE, "GetMetadata"),
            self._request("GetMetadataRequest"),
            max_bytes=_MAX_METADATA_BYTES,
        )
        told = self._read_index(replies)
        told["path"] = self._url
        told["format"] = _results.format_word(type(head), "format", head.format)
        if told["format"] == "safetensors":
            told["metadata"] = dict(head.properties)
        told["warnings"] = list(head.warnings)
        self._places = {
            each["name"]: tuple(each["place"]) for each in told["tensors"]
        }
        return told

    def _read_index(self, replies: List[Any]) -> Dict[str, Any]:
        """The core's description of a .metadata without the files."""
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="tessera-")
                )
                with open(pathlib.Path(folder, ".metadata"), "wb") as file:
                    for reply in replies:
                        file.write(reply.data)
            except OSError as failure:
                raise _errors.ResourceExhaustedError(
                    f"{self._url}: the index cannot be kept in "
                    f"{tempfile.gettempdir()} while it is read: "
                    f"{failure.strerror}",
                    path=self._url,
                ) from None
            try:
                index = _files.FileSource(folder)
                told = index.describe()
                index.close()
            except _errors.Error as failure:
                message = str(failure).replace(folder, self._url)
                raise type(failure)(message, path=self._url) from None
        return told

    def close(self) -> None:
        self._is_closed = True
        if self._owns_channel:
            self._channel.close()

    def read(
        self, regions: Sequence[_arrays.Region], memory: int, verify: bool
    ) -> None:
        self._check_open()
        if verify:
            raise _errors.UnimplementedError(
                f"{self._url}: a daemon does not compare what it sends with the "
                "recorded checksums; verify the checkpoint with "
                "tessera.client.Client.verify",
                path=self._url,
            )
        for request, part_of in self._requests(regions, memory):
            TensorReader(self._channel, request, part_of).run()

    def object_archives(self, names: Sequence[str]) -> Dict[str, bytes]:
        self._check_open()
        archives: Dict[str, bytes] = {}
        for begin in range(0, len(names), _MAX_NAMES):
            wanted = names[begin : begin + _MAX_NAMES]
            replies = self._channel.collect(
                _messages.method(_SERVICE, "ReadObjects"),
                self._request(
                    "ReadObjectsRequest",
                    names=[_pickles.escape(name) for name in wanted],
                ),
                max_bytes=_MAX_OBJECT_BYTES,
            )
            for reply in replies:
                archives[reply.name] = _pickles.archive(
                    reply.name, reply.pickle
                )
        # The answers do not name their checkpoint.
        if names and self._inspect().etag != self._etag:
            raise _errors.FailedPreconditionError(
                f"{self._url}: the checkpoint was replaced after it was opened",
                path=self._url,
            )
        for name in names:
            if name not in archives:
                raise _errors.NotFoundError(
                    f"{name} is not an object of {self._url}",
                    path=self._url,
                    tensor=name,
                )
        return archives

    def not_dense(self, names: Sequence[str]) -> List[str]:
        """None: a daemon does not send such tensors, and says so."""
        return []

    def item(self, name: str, chunk: int = 0) -> bytes:
        raise _errors.UnimplementedError(
            f"{self._url}: a daemon does not send {name} as it is stored",
            path=self._url,
            tensor=name,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self._url} is closed")

    def _request(self, name: str, **fields: Any) -> Any:
        return _messages.message(name)(source={"path": self._path}, **fields)

    def _inspect(self) -> Any:
        """The format and the etag, without the entries."""
        return self._channel.call(
            _messages.method(_SERVICE, "Inspect"),
            self._request("InspectRequest", page_size=1),
        )

    def _message_bytes(self, memory: int) -> int:
        """The most payload in a message; 0: the server decides."""
        if memory == 0:
            return 0
        in_flight = _MESSAGES_IN_FLIGHT * self._channel.options.num_streams
        return min(
            max(memory // in_flight, _MIN_MESSAGE_BYTES), _MAX_MESSAGE_BYTES
        )

    def _requests(
        self, regions: Sequence[_arrays.Region], memory: int
    ) -> Iterator[Tuple[Any, List[_arrays.Region]]]:
        """The regions in the order of the files, in requests that a server
        accepts."""
        wanted = [
            region
            for region in regions
            if _arrays.num_bytes(region.dtype, region.sizes) > 0
        ]
        wanted.sort(key=lambda region: self._places.get(region.name, (0, 0)))
        message_bytes = self._message_bytes(memory)
        parts: List[Any] = []
        taken: List[_arrays.Region] = []
        size = 0
        part_class = _messages.message("ReadTensorsRequest.Part")

        def request() -> Any:
            return self._request(
                "ReadTensorsRequest",
                parts={"parts": parts},
                etag=self._etag,
                max_chunk_bytes=message_bytes,
            )

        for region in wanted:
            part = part_class(
                name=region.name,
                dtype=region.dtype,
                box={
                    "offsets": list(region.offsets),
                    "sizes": list(region.sizes),
                },
            )
            part_size = part.ByteSize()
            if parts and size + part_size > _MAX_REQUEST_BYTES:
                yield request(), taken
                parts, taken, size = [], [], 0
            parts.append(part)
            taken.append(region)
            size += part_size
        if parts:
            yield request(), taken
