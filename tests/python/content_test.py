"""What the wheel carries, and on which systems it runs."""

import json
import os
import pathlib
import re
import subprocess
import sys

import tessera

WHEEL = pathlib.Path(os.environ["TESSERA_WHEEL"])
FOLDER = pathlib.Path(tessera.__file__).parent
LOADER = "/lib64/ld-linux-x86-64.so.2"
# What the tag of the wheel says that each system has (PEP 600), of what ours need.
SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|gcc_s|stdc\+\+|z))\.so\.")


def libraries_of(file):
    """The libraries that the loader finds for a program or library, by name."""
    listed = subprocess.check_output([LOADER, "--list", file], text=True)
    return dict(re.findall(r"^\t(\S+) => (.*?)(?: \(0x\w+\))?$", listed, re.M))


def test_auditwheel_agrees_with_the_tag():
    told = json.loads(
        subprocess.check_output(
            [sys.executable, "-m", "auditwheel", "show", "--json", WHEEL]
        )
    )
    assert f"py3-none-{told['overall_tag']}.whl" in WHEEL.name
    assert told["overall_tag"] == "manylinux_2_35_x86_64"
    assert told["external_libs"] == {}
    assert not told["unsupported_isa"]


def test_every_library_is_found_in_the_wheel():
    roots = [*(FOLDER / "bin").iterdir(), FOLDER / "lib" / "libtessera.so"]
    assert len(roots) == 4
    used = {"libtessera.so"}
    for root in roots:
        for name, path in libraries_of(root).items():
            if not SYSTEM.match(name):
                assert pathlib.Path(path).parent.resolve() == FOLDER / "lib", name
                used.add(name)
    # Nothing else is carried.
    assert used == {file.name for file in (FOLDER / "lib").iterdir()}
