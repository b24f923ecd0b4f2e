# SPDX-License-Identifier: Apache-2.0
"""Copies headers to where their includes find them.

Usage: copy_headers.py OUTPUT FOUND INCLUDE_DIR...

FOUND is a compiler's output with -M; OUTPUT is a folder. The headers of other
projects, which lie outside of this folder or below external/, are left out. A
header may be found through several of the folders that the compiler searched.
It gets the name by which a header or the source includes it.
"""

import os
import re
import shutil
import sys

_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)


def found_files(path):
    with open(path) as file:
        text = file.read().replace("\\\n", " ")
    return [
        path
        for path in text.split(":", 1)[1].split()
        if not path.startswith(("/", "external/"))
    ]


def spelled_includes(paths):
    spelled = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            spelled.update(_INCLUDE.findall(file.read()))
    return spelled


def include_name(path, include_dirs, spelled):
    for folder in include_dirs:
        name = os.path.relpath(path, folder)
        if name in spelled:
            return name
    sys.exit("%s is included under no name that is known" % path)


def main(output, found, *include_dirs):
    source, *headers = found_files(found)
    spelled = spelled_includes([source] + headers)
    for path in headers:
        target = os.path.join(output, include_name(path, include_dirs, spelled))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, target)


main(*sys.argv[1:])
