# SPDX-License-Identifier: Apache-2.0
"""The project as a dict of path -> text, None for files that are not text."""

import os
import re
import subprocess

# The top folders of the product, and all that have our own code.
PRODUCT = (
    "capi",
    "client",
    "config",
    "dcp",
    "document",
    "fsdp",
    "plugins",
    "proto",
    "server",
    "tessera",
    "tools",
)
OURS = PRODUCT + ("tests",)

CODE = (".cc", ".h")


def read_tree(root):
    """The files of the project: those that git tracks, and new ones."""
    try:
        listed = subprocess.run(
            [
                "git",
                "-c",
                "safe.directory=*",
                "-C",
                root,
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
        paths = [p for p in listed.split("\0") if p]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [
                f for f in folders if f != ".git" and not f.startswith("bazel-")
            ]
            paths += [
                os.path.relpath(os.path.join(folder, n), root) for n in names
            ]
    tree = {}
    for path in sorted(paths):
        full = os.path.join(root, path)
        if not os.path.isfile(full):
            continue
        with open(full, "rb") as file:
            data = file.read()
        try:
            tree[path] = None if b"\0" in data else data.decode()
        except UnicodeDecodeError:
            tree[path] = None
    return tree


def code_files(tree, *tops):
    for path, text in tree.items():
        if (
            text is not None
            and path.endswith(CODE)
            and (not tops or path.split("/")[0] in tops)
        ):
            yield path, text


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.S,
)


def without_comments_and_strings(text):
    """C++ with these blanked; line numbers stay."""

    def blank(match):
        if (
            match.group(0).startswith('"')
            and "#include"
            in text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        ):
            return match.group(0)
        return "\n" * match.group(0).count("\n") + " "

    return _TOKEN.sub(blank, text)


def grep(path, text, pattern, message):
    findings = []
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(pattern, line):
            findings.append("%s:%d: %s" % (path, number, message))
    return findings


LICENCE = "SPDX-License-Identifier: Apache-2.0"
_LICENCE_LINES = re.compile(
    r"\A(#![^\n]*\n)?(?:/\* %s \*/|(?://|#) %s)\n\n?" % (LICENCE, LICENCE)
)


def has_licence(text):
    """Whether a source names its licence at its head."""
    return _LICENCE_LINES.match(text) is not None


def without_licence(text):
    return _LICENCE_LINES.sub(lambda found: found[1] or "", text, count=1)
