# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint with PyTorch alone and prints how long each part took.

    python torch_convert.py pt|safetensors|index SRC DST

Prints JSON: seconds to import, to convert, and to sync the result, which
PyTorch itself does not do. `index` only reads the index.
"""

import json
import os
import sys
import time

begin = time.monotonic()
import torch.distributed.checkpoint as dcp  # pylint: disable=C0413
from torch.distributed.checkpoint import format_utils


def to_safetensors(src, dst):
    """Loads whole tensors as dcp_to_torch_save does, and saves those."""
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.default_planner import (
        _EmptyStateDictLoadPlanner,
    )
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {}
    _load_state_dict(
        state,
        storage_reader=dcp.FileSystemReader(src),
        planner=_EmptyStateDictLoadPlanner(keys={"model"}),
        no_dist=True,
    )
    save_file(state["model"], dst)


def main():
    kind, src, dst = sys.argv[1:]
    imported = time.monotonic()
    if kind == "pt":
        format_utils.dcp_to_torch_save(src, dst)
    elif kind == "safetensors":
        to_safetensors(src, dst)
    else:
        dcp.FileSystemReader(src).read_metadata()
    converted = time.monotonic()
    if os.path.exists(dst):
        fd = os.open(dst, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    print(
        json.dumps(
            {
                "import": imported - begin,
                "convert": converted - imported,
                "sync": time.monotonic() - converted,
            }
        )
    )


if __name__ == "__main__":
    main()
