# SPDX-License-Identifier: Apache-2.0
"""The rules for the pages in Markdown, of tidy.py's form: their links, paths and
tests exist, and their code is that of a source."""

import os
import re
import textwrap


def _prose(text):
    """Markdown without fenced blocks; line numbers stay."""
    return re.sub(
        r"^( *)(```|~~~).*?^ *\2[^\n]*$",
        lambda m: "\n" * m.group(0).count("\n"),
        text,
        flags=re.S | re.M,
    )


def slug(heading):
    heading = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _exists(tree, path):
    path = path.rstrip("/")
    return path in tree or any(
        p.startswith((path + "/", path + ".")) for p in tree
    )


def links_exist(tree):
    findings = []
    for path, text in tree.items():
        if text is None or not path.endswith(".md"):
            continue
        for number, line in enumerate(_prose(text).split("\n"), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", link):
                    continue
                target, _, anchor = link.partition("#")
                full = (
                    os.path.normpath(
                        os.path.join(os.path.dirname(path), target)
                    )
                    if target
                    else path
                )
                if not _exists(tree, full):
                    findings.append(
                        "%s:%d: link to %s, which is not there"
                        % (path, number, target)
                    )
                elif anchor and tree.get(full) is not None:
                    slugs = [
                        slug(h)
                        for h in re.findall(
                            r"^#+ +(.*)$", _prose(tree[full]), re.M
                        )
                    ]
                    if anchor not in slugs:
                        findings.append(
                            "%s:%d: %s has no heading #%s"
                            % (path, number, full, anchor)
                        )
    return findings


_TOPS = (
    "dcp/",
    "fsdp/",
    "proto/",
    "server/",
    "client/",
    "tests/",
    "tools/",
    "third_party/",
    "docs/",
    ".ci/",
)


def _label_exists(tree, label):
    package, _, name = label[2:].partition(":")
    build = (
        tree.get(package + "/BUILD.bazel")
        if package
        else tree.get("BUILD.bazel")
    )
    if package.endswith("..."):
        return _exists(tree, package[: -len("...")] or "BUILD.bazel")
    if build is None:
        return False
    name = name or package.split("/")[-1]
    if name == "all":
        return True
    # fuzz_test declares this target in addition to the test itself.
    return '"%s"' % re.sub(r"_fuzzer$", "", name) in build


def paths_exist(tree):
    findings = []
    for path, text in tree.items():
        if text is None or not path.endswith(".md"):
            continue
        for number, line in enumerate(_prose(text).split("\n"), 1):
            for code in re.findall(r"`([^`]+)`", line):
                for word in re.split(r"[\s,;()]+", code):
                    word = re.sub(r"(?<!\.\.)[.:]$", "", word)
                    if re.search(r"[*<>{}$\[\]]|\.\.\.(?!$)", word):
                        continue  # A pattern, not a path.
                    if word.startswith("//") and len(word) > 2:
                        found = _label_exists(tree, word)
                    elif word.startswith(_TOPS):
                        found = _exists(tree, word)
                    else:
                        continue
                    if not found:
                        findings.append(
                            "%s:%d: %s is not there" % (path, number, word)
                        )
    return findings


def tests_exist(tree):
    """`Suite.Name` and `Suite.*` in a page are tests of the project."""
    tests = set()
    for path, text in tree.items():
        if path.startswith("tests/") and path.endswith(".cc"):
            for suite, name in re.findall(
                r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", text or "", re.M
            ):
                tests.update(("%s.%s" % (suite, name), suite + ".*"))
    findings = []
    for path, text in tree.items():
        if text is None or not path.endswith(".md"):
            continue
        for number, line in enumerate(_prose(text).split("\n"), 1):
            for name in re.findall(
                r"`([A-Z]\w+\.(?:[A-Z]\w*[a-z]\w*|\*))`", line
            ):
                if name not in tests:
                    findings.append(
                        "%s:%d: there is no test %s" % (path, number, name)
                    )
    return findings


def snippets_are_code(tree):
    """The block after `<!-- PATH: NAME -->` is what stands in PATH between the
    lines `// [NAME]` and `// [/NAME]`."""
    findings = []
    for path, text in tree.items():
        if text is None or not path.endswith(".md"):
            continue
        for found in re.finditer(
            r"^<!-- (\S+): (\w+) -->\n```cpp\n(.*?)^```$", text, re.M | re.S
        ):
            source, name, shown = found.groups()
            region = re.search(
                r"^ *// \[%s\]\n(.*?)^ *// \[/%s\]$" % (name, name),
                tree.get(source) or "",
                re.M | re.S,
            )
            if region is None or textwrap.dedent(region.group(1)) != shown:
                findings.append(
                    "%s:%d: the code is not that of [%s] in %s"
                    % (
                        path,
                        text.count("\n", 0, found.start()) + 1,
                        name,
                        source,
                    )
                )
    return findings


RULES = (links_exist, paths_exist, snippets_are_code, tests_exist)
