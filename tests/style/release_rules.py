"""The rules for a release, of tidy.py's form: its text, its version and its
figures."""

import re

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


RULES = (changes_have_form, version_stands_once)
