# SPDX-License-Identifier: Apache-2.0
"""Opens golden checkpoints: python_test.py FOLDER"""

import json
import pathlib
import platform
import sys

import tessera

assert platform.machine() == "aarch64"
num_tensors = 0
for expected in pathlib.Path(sys.argv[1]).glob("*.expected.json"):
    name = expected.name.removesuffix(".expected.json")
    source = expected.with_name(name)
    source = source if source.exists() else source.with_suffix(".pt")
    if not source.exists():
        continue  # another expectation of one that exists
    with tessera.open(source) as checkpoint:
        for tensor in json.loads(expected.read_text())["tensors"]:
            assert tensor in checkpoint, (source, tensor)
            num_tensors += 1
assert num_tensors > 50, num_tensors
try:
    tessera.open("/no/such")
    raise AssertionError("it opened nothing")
except tessera.NotFoundError as error:
    assert "/no/such" in str(error)
print(f"{num_tensors} tensors")
