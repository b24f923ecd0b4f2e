# SPDX-License-Identifier: Apache-2.0
"""Client: a program's connection to a daemon, for jobs and checkpoints."""

from __future__ import annotations

import os
from typing import Any
from typing import Dict
from typing import List
from typing import Optional
from typing import Union

from tessera._checkpoint import Checkpoint
from tessera.client import _jobs
from tessera.client._channel import Channel
from tessera.client._channel import ClientOptions
from tessera.client._results import ConvertResult
from tessera.client._results import VerifyReport
from tessera.client._source import DaemonSource

Path = Union[str, "os.PathLike[str]"]


class Client:
    """A daemon. Connects on first use. Any thread, but not in a fork of the
    process: that must make another client.

    Paths are the daemon's: absolute, or in an object store that it serves. The
    keywords for jobs are the fields in the request and in its source,
    destination, selection and options, which proto/tessera/v1 documents:

      include=["model.*"], casts="bf16", renames, parts   of Selection
      overwrite=True                                      of Destination
      map={"builtin": "llama", ...}, rank, dialect        of Source
      memory_bytes="1GiB", no_verify, strict_cast,
      validate_only=True, request_id                      of JobOptions
      format="safetensors", max_shard_bytes="5GB",
      placements, drop_non_tensors, metadata              of the request

    A job is submitted under a request id, so that a retry never starts it twice;
    give your own to be safe against a crash of this program too. With
    validate_only the job is done at once, and its result is the plan.

    Args:
      address: "host:7420", "[::1]:7420" or "unix:/run/dcp-server.sock".
    """

    def __init__(self, address: str, options: Optional[ClientOptions] = None):
        self.address = address
        self._channel = Channel(address, options or ClientOptions())

    def close(self) -> None:
        """Ends the calls that are being made, and the connection."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def open(self, path: Path) -> Checkpoint:
        """The checkpoint at a path on the daemon, as tessera.open returns it.
        It uses this client's connection."""
        return Checkpoint(DaemonSource(self._channel, os.fspath(path)))

    def convert(
        self,
        source: Path,
        destination: Path,
        *,
        mesh: Optional[Dict[str, int]] = None,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> _jobs.Job[ConvertResult]:
        """Starts a job that converts to another format or sharding.

        Args:
          mesh: the axes and their sizes, {"replicate": 2, "shard": 3}.
          timeout: seconds for this call.
          **fields: see Client; the fields in ConvertRequest.
        """
        fields.update(source=source, destination=destination, mesh=mesh)
        return _jobs.submit(self._channel, "Convert", fields, timeout)

    def reshard(
        self,
        source: Path,
        destination: Path,
        *,
        mesh: Dict[str, int],
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> _jobs.Job[ConvertResult]:
        """Starts a job that converts to DCP for another mesh.

        Args:
          mesh: the axes and their sizes, {"replicate": 2, "shard": 3}.
          timeout: seconds for this call.
          **fields: see Client; the fields in ReshardRequest.
        """
        fields.update(source=source, destination=destination, mesh=mesh)
        return _jobs.submit(self._channel, "Reshard", fields, timeout)

    def consolidate(
        self,
        source: Path,
        destination: Path,
        *,
        timeout: Optional[float] = None,
        **fields: Any,
    ) -> _jobs.Job[ConvertResult]:
        """Starts a job that writes whole tensors.

        Args:
          timeout: seconds for this call.
          **fields: see Client; the fields in ConsolidateRequest.
        """
        fields.update(source=source, destination=destination)
        return _jobs.submit(self._channel, "Consolidate", fields, timeout)

    def verify(
        self, path: Path, *, timeout: Optional[float] = None, **fields: Any
    ) -> _jobs.Job[VerifyReport]:
        """Starts a job that checks structure, coverage and checksums.

        Args:
          timeout: seconds for this call.
          **fields: see Client; the fields in VerifyRequest.
        """
        fields.update(source=path)
        return _jobs.submit(self._channel, "Verify", fields, timeout)

    def job(self, name: str, timeout: Optional[float] = None) -> _jobs.Job[Any]:
        """The job with that name, "operations/..."."""
        operation = _jobs.operation_call(
            self._channel, "GetOperation", {"name": name}, timeout
        )
        return _jobs.Job(self._channel, _jobs.make_status(operation))

    def jobs(
        self, filter: str = "", timeout: Optional[float] = None
    ) -> List[_jobs.Job[Any]]:
        """The jobs that this client may see, such as those with
        "state = RUNNING AND kind = RESHARD"; proto/tessera/v1/job_service.proto
        has the language."""
        return _jobs.list_jobs(self._channel, filter, timeout)


def open_url(url: str, options: Optional[ClientOptions]) -> Checkpoint:
    """The checkpoint at a tessera:// URL; closing it closes the connection."""
    source = DaemonSource.at(url, options or ClientOptions())
    try:
        return Checkpoint(source)
    except BaseException:
        source.close()
        raise
