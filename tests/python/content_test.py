# SPDX-License-Identifier: Apache-2.0
"""The contents of the wheel, and the systems on which it runs."""

import importlib.metadata
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
# The libraries that ours need and that each system has according to the wheel's
# tag (PEP 600).
SYSTEM = re.compile(
    r"(linux-vdso|ld-linux-x86-64|lib(c|m|gcc_s|stdc\+\+|z))\.so\."
)


def found_libraries(file):
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
        for name, path in found_libraries(root).items():
            if not SYSTEM.match(name):
                assert pathlib.Path(path).parent.resolve() == FOLDER / "lib", (
                    name
                )
                used.add(name)
    # The wheel contains nothing else.
    assert used == {file.name for file in (FOLDER / "lib").iterdir()}


def test_no_library_has_a_name_that_others_ask_for():
    libraries = [file for file in (FOLDER / "lib").iterdir()]
    names = {file.name for file in libraries} - {"libtessera.so"}
    assert names
    for name in names:
        # The system has none with that name.
        assert name.startswith("tsr")
        assert name in found_libraries(FOLDER / "lib" / "libtessera.so") or (
            name in found_libraries(FOLDER / "bin" / "dcp-server")
        )


def test_https_uses_the_systems_openssl():
    code = f"""
import pathlib, tessera
try:
    tessera.open("nothing")
except tessera.NotFoundError:
    pass
import ssl
ssl.create_default_context()
maps = pathlib.Path("/proc/self/maps").read_text()
assert {str(FOLDER)!r} in maps
for line in maps.splitlines():
    assert "libcrypto" not in line or {str(FOLDER)!r} not in line, line
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_licences_are_in_it():
    told = importlib.metadata.files("tessera")
    texts = {
        file.name: file.read_text()
        for file in told
        if file.name in ("LICENSE", "licenses.txt", "METADATA")
    }
    assert "Apache License" in texts["LICENSE"]
    licenses = texts["licenses.txt"]
    for library in ("Tessera", "aws-c-s3", "libabsl-dev", "libssl-dev"):
        assert f"==== {library}" in licenses
    for program in ("dcp-convert", "dcp-server", "fsdp-config"):
        printed = subprocess.check_output(
            [FOLDER / "bin" / program, "--licenses"], text=True
        )
        assert printed.strip() == licenses.strip()
    assert "License-File: LICENSE" in texts["METADATA"]
    assert "Classifier: " in texts["METADATA"]
    # Links to source files would be broken on a page of the package.
    links = re.findall(r"\]\(([^)]*)\)", texts["METADATA"])
    assert all(link.startswith(("#", "https://")) for link in links), links
