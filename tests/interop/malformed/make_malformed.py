# SPDX-License-Identifier: Apache-2.0
"""Generates malformed, hostile, and a few odd but valid checkpoints.

    python make_malformed.py --out DIR

Writes DIR/<case> and DIR/manifest.json, a list of

  name, path, kind   kind: dcp | pt | safetensors | hf
  expect             what `convert` does: reject | accept | either
  verify             what `verify` does, where that differs
  says               what the error message must contain, if anything
  why                what is wrong

A reader must never crash, hang, run code, open a file outside the checkpoint,
or take memory beyond a small multiple of the input. A case that gets its code
run leaves a file PWNED_* in the working directory. Never load these files with
plain pickle or torch.load(weights_only=False). README.md has the reasons of
the less obvious expectations.
"""

import argparse
import collections
import os

import archive_cases
import file_cases
import item_cases
import metadata_cases
import pickle_cases
import safetensors_cases
import zip_cases
from building import Cases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    cases = Cases(out)
    pickle_cases.add(cases)
    metadata_cases.add(cases)
    zip_cases.add(cases)
    item_cases.add(cases)
    file_cases.add(cases)
    safetensors_cases.add(cases)
    archive_cases.add(cases)
    cases.write_manifest()
    counts = collections.Counter(m["expect"] for m in cases.manifest)
    print(len(cases.manifest), "cases:", dict(counts))


if __name__ == "__main__":
    main()
