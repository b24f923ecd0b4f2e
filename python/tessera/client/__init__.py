# SPDX-License-Identifier: Apache-2.0
"""A daemon, dcp-server: jobs, and tensors in checkpoints.

    client = tessera.client.Client("trainer-7:7420")
    job = client.reshard("/srv/run7/step-1000", "/srv/run8/start", mesh={"shard": 8})
    for status in job.watch():
        print(status.done_bytes, status.total_bytes)
    checkpoint = client.open("/srv/run8/start")

tessera.open and tessera.torch.Reader take tessera://trainer-7:7420/srv/run8/start
as a path. This package alone imports grpcio.
"""

try:
    import google.protobuf
    import grpc
    import numpy
except ImportError as missing:
    raise ImportError(
        f"a daemon is reached through {missing.name}, which is not installed: "
        "pip install 'tessera[client]'",
        name=missing.name,
    ) from missing

from tessera.client._channel import ClientOptions
from tessera.client._client import Client
from tessera.client._client import open_url
from tessera.client._jobs import Job
from tessera.client._jobs import JobStatus
from tessera.client._results import ConvertResult
from tessera.client._results import VerifyFinding
from tessera.client._results import VerifyReport

__all__ = [
    "Client",
    "ClientOptions",
    "ConvertResult",
    "Job",
    "JobStatus",
    "VerifyFinding",
    "VerifyReport",
]
