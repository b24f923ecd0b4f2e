# SPDX-License-Identifier: Apache-2.0
"""Writes muon_table.json: matrices after three steps of torch.optim.Muon.

    python make_muon_table.py muon_table.json

Element i of a matrix begins as ((5 * i) % 13 - 6) / 4, and its gradient in step
s is ((7 * i + 3 * s) % 11 - 5) / 8, which float32 holds exactly.
"""

import json
import sys

import torch

SHAPES = [(3, 5), (7, 4), (6, 6), (1, 4)]
OPTIONS = [
    {},
    {"adjust_lr_fn": "original", "nesterov": False, "weight_decay": 0.0},
    {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.5, "ns_steps": 3},
    {"adjust_lr_fn": "spectral_unclamped", "lr": 0.25},
]
STEPS = 3


def values(shape, factor, offset, modulus, divisor):
    index = torch.arange(shape[0] * shape[1]).view(shape)
    return ((factor * index + offset) % modulus - modulus // 2) / divisor


def stepped(shape, options):
    parameter = torch.nn.Parameter(values(shape, 5, 0, 13, 4))
    optimizer = torch.optim.Muon([parameter], **{"lr": 0.125, **options})
    for step in range(STEPS):
        parameter.grad = values(shape, 7, 3 * step, 11, 8)
        optimizer.step()
    return {
        "shape": shape,
        "options": options,
        "parameter": parameter.detach().flatten().tolist(),
        "momentum": optimizer.state[parameter]["momentum_buffer"]
        .flatten()
        .tolist(),
    }


def main():
    rows = [stepped(shape, options) for options in OPTIONS for shape in SHAPES]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(
            {"torch": torch.__version__.split("+")[0], "rows": rows}, file
        )
        file.write("\n")


if __name__ == "__main__":
    main()
