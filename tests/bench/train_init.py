# SPDX-License-Identifier: Apache-2.0
"""Writes weights and tokens for torch_train.py and train_bench.

    python train_init.py SPEC.json

The specification says how many and where; values are random but fixed.
"""

import json
import pathlib
import sys

PARITY = pathlib.Path(__file__).resolve().parents[1] / "fsdp/parity"
sys.path.insert(0, str(PARITY))

import models
import torch


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.manual_seed(0)
    init = pathlib.Path(spec["init"])
    init.mkdir()
    for name, parameter in models.Llama(spec["sizes"]).named_parameters():
        parameter.detach().numpy().tofile(init / f"{name}.bin")
    torch.randint(
        spec["sizes"]["vocab_size"],
        (spec["steps"], spec["batch"], spec["length"]),
    ).numpy().tofile(spec["data"])


if __name__ == "__main__":
    main()
