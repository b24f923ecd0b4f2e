# SPDX-License-Identifier: Apache-2.0
"""Counts words that make prose hard to read, in comments of C++, by folder.

A relative clause that has no noun ("what it holds", "whose files") makes a
native reader stop. The limits are those of code that reads well, per 1,000
words of comments.
"""

import re

from source_tree import CODE, PRODUCT, without_licence

# Word to the most of 1,000 words of comments, in a folder and in all.
AIMS = {"what": 1.0, "whose": 0.5, "its": 2.0, "of": 28.0}
# Functions that are named for a relation and not for what they return.
MAX_OF_NAMES = 20
# A short text may have a few of each.
FEW = 4

_COMMENT = re.compile(r"//([^\n]*)|/\*(.*?)\*/", re.S)
_STRING = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
_WORD = re.compile(r"[A-Za-z]+")
_OF_NAME = re.compile(r"\b([A-Z]\w*Of)\(")


def _folder(path):
    parts = path.split("/")[:-1]
    return "/".join(parts[:2])


def counts(tree):
    """Folder to [number of words, {word: how often}]."""
    result = {}
    for path, text in tree.items():
        if text is None or not path.endswith(CODE):
            continue
        comments = " ".join(
            "".join(groups)
            for groups in _COMMENT.findall(
                _STRING.sub('""', without_licence(text))
            )
        )
        words = [word.lower() for word in _WORD.findall(comments)]
        entry = result.setdefault(_folder(path), [0, dict.fromkeys(AIMS, 0)])
        entry[0] += len(words)
        for word in AIMS:
            entry[1][word] += words.count(word)
    return result


def of_names(tree):
    """The functions of the product that are called XOf."""
    return sorted(
        {
            name
            for path, text in tree.items()
            if text is not None
            and path.endswith(CODE)
            and path.split("/")[0] in PRODUCT
            for name in _OF_NAME.findall(_STRING.sub('""', text))
        }
    )


def _total(by_folder):
    return [
        sum(entry[0] for entry in by_folder.values()),
        {
            word: sum(entry[1][word] for entry in by_folder.values())
            for word in AIMS
        },
    ]


def comments_are_plain(tree):
    by_folder = counts(tree)
    folders = [("all", _total(by_folder))] + sorted(by_folder.items())
    return [
        "%s:1: its %d words of comments have '%s' %d times, more than %.1f of "
        "1,000" % (folder, words, word, found[word], AIMS[word])
        for folder, (words, found) in folders
        for word in AIMS
        if found[word] > max(FEW, AIMS[word] * words / 1000)
    ]


def names_say_the_result(tree):
    names = of_names(tree)
    if len(names) <= MAX_OF_NAMES:
        return []
    return [
        "all:1: %d functions are called XOf, more than %d: %s"
        % (len(names), MAX_OF_NAMES, ", ".join(names))
    ]


def summary(tree):
    by_folder = counts(tree)
    total = _total(by_folder)
    lines = [
        "%-28s %7s %s"
        % (
            "per 1,000 words of comments",
            "words",
            " ".join("%6s" % word for word in AIMS),
        )
    ]
    for folder, (words, found) in [("all", total)] + sorted(by_folder.items()):
        lines.append(
            "%-28s %7d %s"
            % (
                folder,
                words,
                " ".join(
                    "%6.1f" % (1000 * found[word] / max(words, 1))
                    for word in AIMS
                ),
            )
        )
    lines.append("%d functions are called XOf" % len(of_names(tree)))
    return "\n".join(lines)


RULES = (comments_are_plain, names_say_the_result)
