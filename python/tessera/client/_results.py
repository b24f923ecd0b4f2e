# SPDX-License-Identifier: Apache-2.0
"""The results of jobs, as dataclasses. Each keeps the API's whole message,
which the .proto files document, in `message`."""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import Dict
from typing import List
from typing import Optional
from typing import Tuple
from typing import Union

from tessera.client import _messages

# The rest of the package's names for formats.
FORMATS = {
    "dcp": "FORMAT_DCP",
    "safetensors": "FORMAT_SAFETENSORS",
    "pt": "FORMAT_TORCH",
}


def format_word(message_class: Any, field: str, number: int) -> str:
    """The name of a format, such as "dcp"; "" if it is not known here."""
    name = _messages.enum_word(message_class, field, number)
    return {full: word for word, full in FORMATS.items()}.get(name, "")


@dataclasses.dataclass(frozen=True)
class ConvertResult:
    """The output of a job, or with validate_only the output that it would
    write.

    Attributes:
      format: "dcp", "safetensors" or "pt".
      files: each file's size, by the name relative to the destination, which is
        empty if the destination is one file; at most 10000.
      dropped: names of entries that were left out; at most 10000.
      warnings: the source's losses, as in a Checkpoint.
      elapsed_seconds: how long the job ran; None in a plan.
      message: the tessera.v1.ConvertResult.
    """

    format: str
    files: Dict[str, int]
    num_tensors: int
    num_objects: int
    bytes_to_read: int
    bytes_to_write: int
    memory_bytes: int
    dropped: List[str]
    warnings: List[str]
    elapsed_seconds: Optional[float]
    message: Any = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class VerifyFinding:
    """A mistake in a checkpoint.

    Attributes:
      name: the tensor or object; empty for the checkpoint as a whole.
    """

    name: str
    file: str
    offset: int
    problem: str


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    """The findings of a job.

    Attributes:
      findings: at most 10000; num_findings counts all.
      num_items_unchecked: items for which nothing is recorded.
      warnings: the checkpoint's losses, as in a Checkpoint.
      message: the tessera.v1.VerifyReport.
    """

    findings: List[VerifyFinding]
    num_findings: int
    num_tensors: int
    num_objects: int
    num_crcs_checked: int
    num_digests_checked: int
    num_items_unchecked: int
    bytes_checked: int
    warnings: List[str]
    message: Any = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        return self.num_findings == 0


Result = Union[ConvertResult, VerifyReport]


def _numbers(message: Any, names: Tuple[str, ...]) -> Dict[str, int]:
    return {name: getattr(message, name) for name in names}


def parse_result(any_: Any) -> Optional[Result]:
    """The result in a google.protobuf.Any; None if the kind is not known
    here."""
    message = _messages.unpack(any_, "ConvertResult")
    if message is not None:
        has_time = message.HasField("elapsed")
        time = message.elapsed
        return ConvertResult(
            format=format_word(type(message), "to", message.to),
            files={file.name: file.num_bytes for file in message.files},
            **_numbers(message, ("num_tensors", "num_objects")),
            **_numbers(message, ("bytes_to_read", "bytes_to_write")),
            memory_bytes=message.memory_bytes,
            dropped=list(message.dropped),
            warnings=list(message.warnings),
            elapsed_seconds=time.seconds + time.nanos / 1e9
            if has_time
            else None,
            message=message,
        )
    message = _messages.unpack(any_, "VerifyReport")
    if message is None:
        return None
    return VerifyReport(
        findings=[
            VerifyFinding(each.name, each.file, each.offset, each.problem)
            for each in message.findings
        ],
        **_numbers(message, ("num_findings", "num_tensors", "num_objects")),
        **_numbers(message, ("num_crcs_checked", "num_digests_checked")),
        **_numbers(message, ("num_items_unchecked", "bytes_checked")),
        warnings=list(message.warnings),
        message=message,
    )
