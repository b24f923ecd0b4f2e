# SPDX-License-Identifier: Apache-2.0
"""Loads a model that train_llama trained and transformers understands:

    in_transformers.py FOLDER TEXT LOSSES [--seq-len N] [--batch N] [--seed N]

FOLDER is one that transformers loads. The first line in LOSSES is train_llama's
loss with these weights on the first batch of TEXT, and transformers must agree.
Then the model continues a text by itself.
"""

import argparse
import os
import pathlib
import sys

# Nothing here is on a hub.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch
import transformers

# One rounds the angles of positions later than the other.
TOLERANCE = 1e-5
BEGINNING = "// Returns the number of "
MASK = 2**64 - 1


def mix(x):
    """SplitMix64, from which train_llama draws where its sequences begin."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def first_batch(text, args):
    """The bytes in the sequences for step 0, each with the one that follows."""
    starts = [
        mix(mix(mix(args.seed)) ^ sequence) % (len(text) - args.seq_len)
        for sequence in range(args.batch)
    ]
    return torch.tensor(
        [list(text[start : start + args.seq_len + 1]) for start in starts]
    )


def load(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        sys.exit(f"{folder} is not a whole model: {wrong}")
    return model.eval()


def compute_loss(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch[:, 1:].flatten()
    ).item()


def continue_text(model):
    tokens = torch.tensor([list(BEGINNING.encode())])
    more = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=40,
        do_sample=False,
    )
    return bytes(more[0].tolist()).decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "text", "losses"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = load(args.folder)
    with torch.no_grad():
        loss = compute_loss(model, first_batch(args.text.read_bytes(), args))
        text = continue_text(model)
    expected = float(args.losses.read_text().split()[0])
    difference = abs(loss - expected)
    print(f"{type(model).__name__}, {model.num_parameters():,} parameters")
    print(f"loss of train_llama    {expected:.6f}")
    print(f"loss of transformers   {loss:.6f}")
    print(f"difference             {difference:.1e}, allowed {TOLERANCE:.0e}")
    if not difference <= TOLERANCE:
        sys.exit("the losses differ")
    print(f"it continues           {text!r}")


if __name__ == "__main__":
    main()
