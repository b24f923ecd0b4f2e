# SPDX-License-Identifier: Apache-2.0
"""Makes the folder of pages that mkdocs turns into the site:

    stage.py ROOT OUTPUT

The pages are the Markdown files that git tracks. A link to a source leads to a
copy of it, and one to a folder to a list of the files in it, so that every link
can be checked. OUTPUT gets the folder pages and the file mkdocs.yml.
"""

import os
import posixpath
import re
import shutil
import subprocess
import sys

import references

HERE = os.path.dirname(os.path.abspath(__file__))
# Pages for those who propose changes, on the platform that shows them.
LEFT_OUT = (".github/",)
PROTO_FOLDER = "proto/tessera/v1"
PYTHON_MODULES = (
    "tessera",
    "tessera.torch",
    "tessera.safetensors",
    "tessera.client",
)
LISTING = "files.md"  # the page that lists a folder without README.md
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r" *([-*]|\d+\.) +(?=\S)")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def tracked_files(root):
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
    return sorted(
        path
        for path in listed.split("\0")
        if path and os.path.isfile(os.path.join(root, path))
    )


def copy_name(path):
    """The name of a source on the site: browsers show .txt, and mkdocs leaves out
    names that begin with a dot."""
    if path.endswith((".png", ".svg")):
        return path
    folder, name = posixpath.split(path)
    return posixpath.join(folder, name.lstrip(".") + ".txt")


class Links:
    """Where the links of pages lead; collects the sources and folders that must be
    there for them."""

    def __init__(self, files):
        self._files = set(files)
        self._folders = {posixpath.dirname(path) for path in files}
        for folder in list(self._folders):
            while folder:
                folder = posixpath.dirname(folder)
                self._folders.add(folder)
        self.sources = set()
        self.folders = set()

    def target(self, page, link):
        """`link` of `page`, as the site has it; a link that leads nowhere stays as
        it is, so that mkdocs reports it."""
        path, hash_mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        base = posixpath.dirname(page)
        full = posixpath.normpath(posixpath.join(base, path))
        full = "" if full == "." else full
        if full in self._folders:
            if posixpath.join(full, "README.md") in self._files:
                found = posixpath.join(full, "README.md")
            else:
                self.folders.add(full)
                found = posixpath.join(full, LISTING)
        elif full in self._files and not full.endswith(".md"):
            found = copy_name(full)
            self.sources.add(full)
        else:
            return link
        return posixpath.relpath(found, base or ".") + hash_mark + anchor


class Lists:
    """Indents the lines of lists as Python-Markdown requires it, by four spaces
    for each list, and sets an item apart from a paragraph before it. The pages
    follow CommonMark: lines that belong to an item are below the first
    character of the item's text."""

    def __init__(self):
        self._columns = []  # where the text of each open item begins
        self._after_blank = True
        self._had_blank = True  # since the last item began

    def lines(self, line, in_fence):
        """The line as one or two lines."""
        if not line.strip():
            self._after_blank = self._had_blank = True
            return [line]
        indent = len(line) - len(line.lstrip(" "))
        item = None if in_fence else _ITEM.match(line)
        apart = bool(
            item
            and not self._after_blank
            and (self._had_blank or not self._columns)
        )
        if item or self._after_blank or in_fence:
            while self._columns and indent < self._columns[-1]:
                self._columns.pop()
        self._after_blank = False
        depth = len(self._columns)
        inner = max(indent - self._columns[-1], 0) if depth else indent
        if item and (inner < 4 or not depth):
            inner = 0
            self._columns.append(len(item[0]))
            self._had_blank = False
        return [""] * apart + [" " * (4 * depth + inner) + line.lstrip(" ")]


def staged_page(text, rewrite):
    """A page as Python-Markdown reads it: links outside of code are rewritten,
    and lists are indented as there."""
    lines, fence, lists = [], None, Lists()
    for line in text.split("\n"):
        found = _FENCE.match(line)
        was_fence = fence is not None
        if found and fence in (None, found[1]):
            fence = None if fence else found[1]
        elif fence is None:
            line = _LINK.sub(lambda m: m[1] + rewrite(m[2]) + m[3], line)
        lines += lists.lines(line, was_fence)
    return "\n".join(lines)


def _write(output, path, text):
    full = os.path.join(output, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as file:
        file.write(text)


def listing(folder, files):
    """The page of a folder, and the files that it links to."""
    inside = [path for path in files if posixpath.dirname(path) == folder]
    lines = ["# " + folder, ""]
    for path in inside:
        name = posixpath.basename(path)
        if name.endswith(".md"):
            lines.append("- [%s](%s)" % (name, name))
        else:
            lines.append("- `%s`" % name)
    below = sorted(
        {
            path[len(folder) + 1 :].split("/")[0] + "/"
            for path in files
            if path.startswith(folder + "/")
            and posixpath.dirname(path) != folder
        }
    )
    lines += ["- `%s`" % name for name in below]
    return "\n".join(lines) + "\n"


def _title(path):
    return posixpath.dirname(path) if path.endswith("README.md") else path


def _base(path):
    return posixpath.basename(path)[: -len(".md")]


def make_nav(config, pages):
    """The text of mkdocs.yml with the references and the pages that it does not
    name."""
    proto = [p for p in pages if p.startswith("reference/proto/")]
    python = [p for p in pages if p.startswith("reference/python/")]
    named = set(re.findall(r": (\S+\.md)$", config, re.M))
    decisions = [p for p in pages if p.startswith("docs/decisions/")]
    rest = [
        p
        for p in pages
        if p not in named
        and p not in proto + python + decisions
        and not p.endswith("/" + LISTING)
    ]

    def entries(paths, title):
        return "".join('  - "%s": %s\n' % (title(p), p) for p in paths)

    config = config.replace(
        "- Reference:\n", "- Reference:\n" + entries(proto, _base)
    )
    config = config.replace(
        "- Python:\n", "- Python:\n" + entries(python, _base)
    )
    return (
        config
        + "- Decisions:\n"
        + "".join("  - %s\n" % p for p in decisions)
        + "- Inside:\n"
        + entries(rest, _title)
        + "\nnot_in_nav: |\n  %s\n" % LISTING
    )


def main(root, output):
    files = tracked_files(root)
    pages = [
        path
        for path in files
        if path.endswith(".md") and not path.startswith(LEFT_OUT)
    ]
    folder = os.path.join(output, "pages")
    links = Links(files)
    for path in pages:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        _write(
            folder,
            path,
            staged_page(text, lambda link, page=path: links.target(page, link)),
        )
    for path in sorted(links.folders):
        _write(folder, posixpath.join(path, LISTING), listing(path, files))
    for path in sorted(links.sources):
        target = os.path.join(folder, copy_name(path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(root, path), target)
    for path in files:
        if path.startswith(PROTO_FOLDER) and path.endswith(".proto"):
            name = posixpath.basename(path)
            with open(os.path.join(root, path), encoding="utf-8") as file:
                page = references.proto_page(name, file.read())
            pages.append("reference/proto/%s.md" % name)
            _write(folder, pages[-1], page)
    package = references.Package(os.path.join(root, "python"))
    for module in PYTHON_MODULES:
        pages.append("reference/python/%s.md" % module)
        _write(folder, pages[-1], references.python_page(package, module))
    with open(os.path.join(HERE, "mkdocs.yml"), encoding="utf-8") as file:
        config = file.read()
    _write(output, "mkdocs.yml", make_nav(config, pages))


if __name__ == "__main__":
    main(*sys.argv[1:])
