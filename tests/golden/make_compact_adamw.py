# SPDX-License-Identifier: Apache-2.0
"""Makes compact_adamw.json: four steps of AdamW with moments in 8 bits.

    python make_compact_adamw.py > compact_adamw.json

It needs torch 2.15.0, torchao 0.18.0 and bitsandbytes 0.50.2, which must agree
about every map and code.
"""

import json

import bitsandbytes
import torch

# torchao compiles its step, which takes a compiler and computes the same.
torch.compile = lambda function, **options: function

from torchao.optim import AdamW8bit
from torchao.optim.quant_utils import create_dynamic_map

SHAPE = (16, 256)
OPTIONS = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 0.99)}


def train(make):
    index = torch.arange(4096)
    start = ((index * 37) % 101 - 50).float() / 50
    parameter = torch.nn.Parameter(start.view(SHAPE))
    optimizer = make([parameter], **OPTIONS)
    for step in range(4):
        gradient = ((index * 53 + step * 17) % 97 - 48).float() / 480
        parameter.grad = (gradient * (1 + step)).view(SHAPE)
        optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


def hexadecimal(codes):
    return bytes(codes.flatten().tolist()).hex()


def main():
    maps = {}
    for name, signed in (("signed", True), ("unsigned", False)):
        maps[name] = create_dynamic_map(signed)
        other = bitsandbytes.functional.create_dynamic_map(signed)
        assert torch.equal(torch.tensor(maps[name]), other)
    parameter, state = train(AdamW8bit)
    _, other = train(bitsandbytes.optim.AdamW8bit)
    first, second = state["exp_avg"], state["exp_avg_sq"]
    assert torch.equal(first.codes, other["state1"])
    assert torch.equal(second.codes, other["state2"])
    table = {
        "maps": maps,
        "codes1": hexadecimal(first.codes),
        "codes2": hexadecimal(second.codes),
        "scales1": first.scale.tolist(),
        "scales2": second.scale.tolist(),
        "parameters": parameter.flatten()[::16].tolist(),
    }
    print(json.dumps(table, separators=(",", ":")))


if __name__ == "__main__":
    main()
