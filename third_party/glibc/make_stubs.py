# SPDX-License-Identifier: Apache-2.0
"""Makes stubs of an older glibc, to link with, from the installed one.

usage: make_stubs.py FOLDER LIBRARY... -- COMPILER FLAG...

glibc keeps the old version of each symbol that it ever changed. For each symbol,
a stub has the newest version that is not newer than LIMITS says. The stubs do not
have the symbols that came later, so the linker reports each object that uses one.

COMPILER links the stubs for the machine of the libraries. It gets each FLAG.
FOLDER gets a stub of each shared LIBRARY, a copy of each archive, which becomes a
part of the C library, and the names by which a linker looks for them.
"""

import os
import re
import shutil
import subprocess
import sys

# What RHEL 8 has: glibc 2.28, and the libraries of GCC 8.
LIMITS = {
    "GLIBC": (2, 28),
    "GLIBCXX": (3, 4, 25),
    "CXXABI": (1, 3, 11),
    "GCC": (7, 0, 0),
}
# Programs for the older glibc must load these, which 2.34 made a part of
# libc.so.6. The loader finds a symbol by its name and version alone, whichever
# library has it, so the stub of libc.so.6 may have their symbols.
MERGED = ("libpthread.so.0", "libdl.so.2", "librt.so.1")


def number(version):
    """(2, 17) for GLIBC_2.17; None for what the older libraries do not have."""
    found = re.fullmatch(r"([A-Z]+)_([\d.]+)", version)
    if not found or found[1] not in LIMITS:
        return None
    numbers = tuple(map(int, found[2].split(".")))
    return numbers if numbers <= LIMITS[found[1]] else None


def old_symbols(library):
    """{name: (version, type, size)} as the older library had them."""
    listed = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", library],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    newest = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) != 8 or fields[6] == "UND" or "@" not in fields[7]:
            continue
        name, version = re.split("@+", fields[7])
        found = number(version)
        if found and (name not in newest or found > number(newest[name][0])):
            newest[name] = (version, fields[3], int(fields[2], 0))
    return newest


def assembly(symbols):
    """Defines them; programs copy data, whose size therefore matters."""
    lines = []
    for name, (_, kind, size) in sorted(symbols.items()):
        if kind == "TLS":
            section, kind = '.section .tbss,"awT",@nobits', "tls_object"
        elif kind in ("OBJECT", "UNIQUE"):
            section, kind = '.section .bss,"aw",@nobits', "object"
        else:
            section, kind, size = ".text", "function", 1
        lines += [
            section,
            ".balign 32",
            f".globl {name}",
            f".type {name},@{kind}",
            f".size {name},{size}",
            f"{name}: .zero {max(size, 1)}",
        ]
    return "\n".join(lines + ['.section .note.GNU-stack,"",@progbits', ""])


def version_script(symbols):
    versions = {}
    for name, (version, _, _) in sorted(symbols.items()):
        versions.setdefault(version, []).append(name)
    nodes = [
        f"{version} {{ global: {'; '.join(versions[version])}; }};\n"
        for version in sorted(versions, key=number)
    ]
    return "".join(nodes) or "{ local: *; };\n"


def make_stub(folder, compiler, name, symbols):
    path = os.path.join(folder, name)
    with open(path + ".s", "w") as file:
        file.write(assembly(symbols))
    with open(path + ".lds", "w") as file:
        file.write(version_script(symbols))
    subprocess.run(
        [
            *compiler,
            "-fuse-ld=lld",
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{name},--version-script={path}.lds",
            path + ".s",
            "-o",
            path,
        ],
        check=True,
    )
    os.remove(path + ".s")
    os.remove(path + ".lds")


def scripts(names):
    """{name: inputs} of linker scripts for the libraries with these names."""
    archives = [name for name in names if name.endswith(".a")]
    (loader,) = (name for name in names if name.startswith("ld-"))
    found = {
        re.sub(r"\.so\..*", ".so", name): name
        for name in [*MERGED, *names]
        if re.match(r"lib.*\.so\.", name)
    }
    found["libc.so"] = (
        f"{' '.join(MERGED)} libc.so.6 {' '.join(archives)} AS_NEEDED({loader})"
    )
    # As in Red Hat's toolsets: the archive has what the older library lacks.
    found["libstdc++.so"] += " libstdc++.a"
    return found


def main():
    end = sys.argv.index("--")
    folder, *libraries = sys.argv[1:end]
    compiler = sys.argv[end + 1 :]
    os.makedirs(folder, exist_ok=True)
    for name in MERGED:
        make_stub(folder, compiler, name, {})
    names = [os.path.basename(library) for library in libraries]
    for name, library in zip(names, libraries):
        if name.endswith(".a"):
            shutil.copy(library, folder)
        else:
            make_stub(folder, compiler, name, old_symbols(library))
    for name, inputs in scripts(names).items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(f"INPUT({inputs})\n")


main()
