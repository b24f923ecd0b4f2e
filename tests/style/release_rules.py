# SPDX-License-Identifier: Apache-2.0
"""The rules for a release, of tidy.py's form: its text, its version and its
figures."""

import re

import markdown_rules
from source_tree import CODE, LICENCE, has_licence

_TOOL = "tools/dev/changelog"
_VERSION_FILE = "dcp/base/version.h"

# What users get of it is named by a version; other folders name versions of
# other programs.
_WITHOUT_A_VERSION = (
    "BUILD.bazel",
    "WORKSPACE",
    "capi/",
    "client/",
    "examples/",
    "plugins/",
    "proto/",
    "python/",
    "server/",
    "tools/",
)


def changes_have_form(tree):
    """The files in changelog/unreleased, as tools/dev/changelog reads them."""
    tool = {"__name__": "changelog"}
    exec(compile(tree.get(_TOOL) or "", _TOOL, "exec"), tool)
    findings = []
    for path, text in tree.items():
        if path == "changelog/TEMPLATE" or path.startswith(
            "changelog/unreleased/"
        ):
            try:
                tool["parse_change"](text or "")
            except ValueError as problem:
                findings.append("%s:1: %s" % (path, problem))
    return findings


def version_stands_once(tree):
    """In version.h, and above the newest changes."""
    found = re.search(
        r'\bkVersion\[\] = "([\d.]+)"', tree.get(_VERSION_FILE) or ""
    )
    if found is None:
        return ["%s:1: has no version" % _VERSION_FILE]
    findings = []
    newest = re.search(r"^## (\S+)", tree.get("CHANGELOG.md") or "", re.M)
    if newest is None or newest[1] != found[1]:
        findings.append(
            "CHANGELOG.md:1: its newest release is not %s, the "
            "version in %s" % (found[1], _VERSION_FILE)
        )
    for path, text in tree.items():
        if path.startswith(_WITHOUT_A_VERSION):
            for number, line in enumerate((text or "").split("\n"), 1):
                if re.search(
                    r"(?<![\d.])%s(?![\d.]*\d)" % re.escape(found[1]), line
                ):
                    findings.append(
                        "%s:%d: repeats the version" % (path, number)
                    )
    return findings


# Fractions that README.md writes as words.
_WORDS = {
    "half": 2,
    "third": 3,
    "quarter": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "hundredth": 100,
}
_NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?"
_FIGURES = "docs/benchmarks.md"


def _is_measured(figure, measured):
    """Whether a number of the section is the figure, as exact as it is given."""
    if figure in _WORDS:
        return any(float("%.1g" % each) == _WORDS[figure] for each in measured)
    decimals = len(figure.partition(".")[2])
    value = float(figure.replace(",", ""))
    return any(
        abs(each - value) <= 0.5 * 10**-decimals + 1e-9 for each in measured
    )


def figures_are_measured(tree):
    """A row of a table that links to a section of docs/benchmarks.md has in its
    last cell what that section says; what is compared with PyTorch has a link."""
    sections = {
        markdown_rules.slug(heading): [
            float(number.replace(",", ""))
            for number in re.findall(_NUMBER, text)
        ]
        for heading, text in re.findall(
            r"^## (.*)\n((?:(?!## ).*\n?)*)", tree.get(_FIGURES) or "", re.M
        )
    }
    findings = []
    for path in ("README.md", "python/README.md"):
        compared = False
        for number, line in enumerate((tree.get(path) or "").split("\n"), 1):
            compared = line.startswith("|") and (
                compared or "against PyTorch" in line
            )
            link = re.search(r"benchmarks\.md#([\w-]+)\)", line)
            if not line.startswith("|") or not (link or compared):
                continue
            figures = re.findall(
                _NUMBER + r"|\b(?:%s)\b" % "|".join(_WORDS),
                line.rstrip("| ").split("|")[-1],
            )
            if not link and figures:
                findings.append(
                    "%s:%d: has figures and no link to %s"
                    % (path, number, _FIGURES)
                )
            findings += [
                "%s:%d: %s is not in the section %s of %s"
                % (path, number, figure, link[1], _FIGURES)
                for figure in figures
                if link and not _is_measured(figure, sections.get(link[1], []))
            ]
    return findings


def sources_name_their_licence(tree):
    """At their head, for programs that collect licences."""
    return [
        "%s:1: does not begin with %s" % (path, LICENCE)
        for path, text in tree.items()
        if text
        and (
            path.endswith(CODE + (".c", ".py", ".sh", ".proto", ".bzl"))
            or text.startswith("#!")
        )
        and not has_licence(text)
    ]


RULES = (
    changes_have_form,
    figures_are_measured,
    sources_name_their_licence,
    version_stands_once,
)
