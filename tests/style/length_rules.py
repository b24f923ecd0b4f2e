# SPDX-License-Identifier: Apache-2.0
"""The rules about the length of files and functions."""

import re

from source_tree import (
    CODE,
    OURS,
    code_files,
    without_comments_and_strings,
    without_licence,
)

# The one file whose parts are one algorithm.
LONG_FILES = ("dcp/io/pipeline.cc",)
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70


def files_are_short(tree):
    findings = []
    for path, text in tree.items():
        if (
            text is None
            or not path.endswith(CODE + (".py",))
            or (path in LONG_FILES)
        ):
            continue
        lines = without_licence(text).count("\n")
        if lines > MAX_FILE_LINES:
            findings.append(
                "%s:1: has %d lines, more than %d"
                % (path, lines, MAX_FILE_LINES)
            )
    return findings


_SCOPE = re.compile(
    r"\s*(extern\s*$|((inline|template\s*<[^{]*>)\s*)*"
    r"(namespace|class|struct|union|enum)\b(?!.*\)\s*(const|override|noexcept)?"
    r"\s*$))",
    re.S,
)
_SIGNATURE_END = re.compile(
    r"\)\s*(->\s*[\w:<>,&* ]+|const|override|noexcept|final|\s)*$"
)


def functions(text):
    """(line, number of lines, head) of each function outside of functions.

    Follows the braces of code whose comments, strings and directives are
    blanked: those of scopes hold declarations, and those after a parameter list
    are a function's.
    """
    text = re.sub(
        r"(?m)^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
        lambda m: "\n" * m.group(0).count("\n"),
        without_comments_and_strings(text),
    )
    found = []
    stack = []  # ("scope", "function" or "other", where its head begins)
    begin = 0  # of the statement at hand
    parentheses = 0
    for match in re.finditer(r"[(){};:]", text):
        at, char = match.start(), match.group(0)
        declares = not parentheses and all(kind == "scope" for kind, _ in stack)
        if char in "()":
            parentheses += 1 if char == "(" else -1
        elif char == "{":
            head = text[begin:at]
            if declares and _SCOPE.match(head):
                stack.append(("scope", begin))
                begin = at + 1
            elif declares and "(" in head and _SIGNATURE_END.search(head):
                stack.append(("function", begin))
            else:
                stack.append(("other", begin))
        elif char == "}" and stack:
            kind, start = stack.pop()
            if kind == "function":
                start += len(text[start:at]) - len(text[start:at].lstrip())
                line = text.count("\n", 0, start) + 1
                found.append(
                    (
                        line,
                        text.count("\n", start, at) + 1,
                        " ".join(text[start:at].split("{")[0].split()),
                    )
                )
            if kind != "other":
                begin = at + 1
        elif char == ";" and declares:
            begin = at + 1
        elif (
            char == ":"
            and declares
            and re.search(r"\b(public|private|protected)\s*$", text[begin:at])
        ):
            begin = at + 1
    return found


def functions_are_short(tree):
    findings = []
    for path, text in code_files(tree, *OURS):
        if path in LONG_FILES:
            continue
        for line, lines, head in functions(text):
            if lines > MAX_FUNCTION_LINES:
                findings.append(
                    "%s:%d: %s has %d lines, more than %d"
                    % (path, line, head[:60], lines, MAX_FUNCTION_LINES)
                )
    return findings


RULES = (
    files_are_short,
    functions_are_short,
)
