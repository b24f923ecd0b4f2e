"""Storage for torch.distributed.checkpoint.

    dcp.save(state, storage_writer=tessera.torch.Writer("run7/step-1000"))
    dcp.load(state, storage_reader=tessera.torch.Reader("run7/step-1000"))

After tessera.torch.register(), dcp.save(state, checkpoint_id="run7/step-1000")
and dcp.load use them as well.
"""

from tessera.torch._reader import Reader
from tessera.torch._register import register
from tessera.torch._writer import Writer

__all__ = ["Reader", "Writer", "register"]
