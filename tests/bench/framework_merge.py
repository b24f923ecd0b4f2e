# SPDX-License-Identifier: Apache-2.0
"""Merges a checkpoint with the converter of the framework that wrote it, and
prints how long each part took.

    python framework_merge.py deepspeed|verl|accelerate SRC DST

DST is a folder of safetensors. Prints JSON: seconds to import, to convert, and
to sync the result, which the converters do not do.
"""

import json
import os
import pathlib
import sys
import time
from types import SimpleNamespace

os.environ["DS_ACCELERATOR"] = "cpu"


def merge_deepspeed():
    from deepspeed.utils import zero_to_fp32

    return lambda src, dst: (
        zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(
            src, dst, safe_serialization=True
        )
    )


def merge_verl():
    """Does the same as `python -m verl.model_merger merge`, except for building the
    model, which requires its configuration."""
    from safetensors.torch import save_file
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    def merge(src, dst):
        merger = FSDPModelMerger.__new__(FSDPModelMerger)
        merger.config = SimpleNamespace(local_dir=src)
        world = merger._get_world_size()
        first = merger._load_rank_zero_state_dict(world)
        mesh, names = merger._extract_device_mesh_info(first, world)
        shards, shape = merger._calculate_shard_configuration(mesh, names)
        state = merger._load_and_merge_state_dicts(world, shards, shape, names)
        save_file(state, os.path.join(dst, "model.safetensors"))

    return merge


def merge_accelerate():
    from accelerate.state import PartialState
    from accelerate.utils import merge_fsdp_weights

    def merge(src, dst):
        PartialState(cpu=True)
        merge_fsdp_weights(os.path.join(src, "pytorch_model_fsdp_0"), dst)

    return merge


def main():
    kind, src, dst = sys.argv[1:]
    os.makedirs(dst)
    begin = time.monotonic()
    merge = {
        "deepspeed": merge_deepspeed,
        "verl": merge_verl,
        "accelerate": merge_accelerate,
    }[kind]()
    imported = time.monotonic()
    output = sys.stdout
    sys.stdout = sys.stderr  # the converters print their steps
    merge(src, dst)
    sys.stdout = output
    converted = time.monotonic()
    for path in pathlib.Path(dst).iterdir():
        fd = os.open(path, os.O_RDONLY)
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
