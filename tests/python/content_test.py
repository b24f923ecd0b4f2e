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
# The libraries of the system that programs and libraries of the wheel may need.
SYSTEM = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread))\.so\.\d")


def test_auditwheel_agrees_with_the_tag():
    told = json.loads(
        subprocess.check_output(
            [sys.executable, "-m", "auditwheel", "show", "--json", WHEEL]
        )
    )
    assert f"py3-none-{told['overall_tag']}.whl" in WHEEL.name
    assert told["overall_tag"] == "manylinux_2_28_x86_64"
    assert told["external_libs"] == {}
    assert not told["unsupported_isa"]
    assert WHEEL.stat().st_size < 30 * 2**20


def test_its_files_need_the_c_library_alone():
    files = [*(FOLDER / "bin").iterdir(), *(FOLDER / "lib").iterdir()]
    assert {file.name for file in files} == {
        "dcp-convert",
        "dcp-server",
        "fsdp-config",
        "libtessera.so",
    }
    for file in files:
        read = subprocess.check_output(
            ["/usr/bin/readelf", "--dynamic", "--wide", file], text=True
        )
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read)
        assert "libc.so.6" in needed
        for name in needed:
            assert SYSTEM.fullmatch(name), (file, name)


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
