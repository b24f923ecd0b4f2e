# SPDX-License-Identifier: Apache-2.0
"""Prints the tensors in a DCP checkpoint as examples/cmake's list_checkpoint
does, read by PyTorch: tensor_crcs.py CHECKPOINT.
"""

import sys
import zlib

import torch
import torch.distributed.checkpoint as dcp

metadata = dcp.FileSystemReader(sys.argv[1]).read_metadata()
state = {
    name: torch.empty(entry.size, dtype=entry.properties.dtype)
    for name, entry in metadata.state_dict_metadata.items()
    if isinstance(entry, dcp.metadata.TensorStorageMetadata)
}
dcp.load(state, checkpoint_id=sys.argv[1], no_dist=True)
for name, tensor in state.items():
    print(
        name,
        str(tensor.dtype).removeprefix("torch."),
        list(tensor.shape),
        "%08x" % zlib.crc32(tensor.numpy().tobytes()),
    )
