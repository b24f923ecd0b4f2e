# SPDX-License-Identifier: Apache-2.0
"""Storage for torch.distributed.checkpoint.

    dcp.save(state, storage_writer=tessera.torch.Writer("run7/step-1000"))
    dcp.load(state, storage_reader=tessera.torch.Reader("run7/step-1000"))

After tessera.torch.register(), dcp.save(state, checkpoint_id="run7/step-1000")
and dcp.load use them as well.
"""

import torch

try:
    from tessera.torch import _state
    from tessera.torch._manager import CheckpointManager
    from tessera.torch._reader import Reader
    from tessera.torch._register import register
    from tessera.torch._writer import Writer
except ImportError as missing:
    raise ImportError(
        "tessera.torch requires PyTorch 2.4 or newer, and was tested up to 2.15; "
        f"PyTorch {torch.__version__} lacks a part that it uses: {missing}"
    ) from missing

__all__ = ["CheckpointManager", "Reader", "Writer", "register"]
