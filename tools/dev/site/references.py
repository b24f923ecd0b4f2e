# SPDX-License-Identifier: Apache-2.0
"""Reference pages in Markdown, made from the sources: from the comments in
.proto files, and from the docstrings in the Python package. Pure, apart from
reading the files."""

import ast
import inspect
import os
import re


def _comment(lines):
    """The text of // lines; lines that are indented further are kept as they are."""
    text, block = [], []

    def flush():
        while block and not block[-1].strip():
            block.pop()
        if block:
            text.extend(["", "```", *block, "```", ""])
            block.clear()

    for line in lines:
        if "SPDX-License-Identifier:" in line:
            continue
        line = re.sub(r"^\s*// ?", "", line)
        if line.startswith("  ") or (block and not line.strip()):
            block.append(line[2:])
        else:
            flush()
            text.append(line)
    flush()
    return "\n".join(text).strip()


def proto_page(name, text):
    """A page: a heading for each service, message and enumeration, with the
    comment before it, and the source."""
    lines = text.split("\n")
    page = ["# " + name, ""]
    comments = []
    opening = True
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        found = re.match(r"(service|message|enum) (\w+) \{", line)
        if line.startswith("//"):
            comments.append(line)
        elif found:
            body = [line]
            while not re.match(r"\}", body[-1]) and not body[-1].endswith("{}"):
                body.append(lines[number])
                number += 1
            page += [
                "## " + found[2],
                "",
                _comment(comments),
                "",
                "```proto",
                *body,
                "```",
                "",
            ]
            comments = []
        else:
            if opening and comments:
                page += [_comment(comments), ""]
            opening = opening and not comments
            comments = []
    return "\n".join(page)


# Sections of docstrings that list names.
_LISTS = ("Args", "Attributes", "Raises")


def _docstring(node):
    """A docstring as Markdown: sections become lists of the documented
    names."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    out, section = [], None
    for line in text.split("\n"):
        title = re.fullmatch(r"(Args|Returns|Raises|Yields|Attributes):", line)
        if title:
            section = title[1]
            out += ["", "**%s**" % section, ""]
        elif section and re.match(r"  (  )?\S", line):
            item = re.match(r"  (\*{0,2}[\w, *]+): (.*)", line)
            if item and section in _LISTS:
                out.append("- `%s`: %s" % (item[1], item[2]))
            elif section in _LISTS and not line.startswith("   "):
                out.append("- " + line.strip())
            else:
                out.append("  " + line.strip())
        else:
            section = section if not line.strip() else None
            out.append(line)
    # Indented lines are code.
    return re.sub(
        r"(?m)(?:^    .*\n?)+",
        lambda m: "\n```\n%s\n```\n" % inspect.cleandoc(m[0]),
        "\n".join(out),
    ).strip()


def _signature(node):
    return "%s%s(%s)%s" % (
        "async " if isinstance(node, ast.AsyncFunctionDef) else "",
        node.name,
        ast.unparse(node.args),
        " -> " + ast.unparse(node.returns) if node.returns else "",
    )


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_property(node):
    return any(
        getattr(each, "id", "") == "property" for each in node.decorator_list
    )


def _class_lines(name, node):
    lines = ["## " + name, ""]
    init = [
        m
        for m in node.body
        if isinstance(m, _FUNCTIONS) and m.name == "__init__"
    ]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines += [
        "```python",
        "class %s%s" % (node.name, "(%s)" % bases if bases else ""),
    ]
    lines += [_signature(each) for each in init]
    lines += ["```", "", _docstring(node), ""]
    for method in node.body:
        if not isinstance(method, _FUNCTIONS) or method.name.startswith("_"):
            continue
        head = method.name if _is_property(method) else _signature(method)
        lines += [
            "### %s.%s" % (name, method.name),
            "",
            "```python",
            head,
            "```",
            "",
            _docstring(method),
            "",
        ]
    return lines


class Package:
    """The sources of a Python package, in which names are looked up."""

    def __init__(self, root):
        self._root = root
        self._trees = {}

    def tree(self, module):
        if module not in self._trees:
            base = os.path.join(self._root, *module.split("."))
            path = base + ".py"
            if os.path.isdir(base):
                path = os.path.join(base, "__init__.py")
            with open(path, encoding="utf-8") as file:
                self._trees[module] = ast.parse(file.read())
        return self._trees[module]

    def definition(self, module, name):
        """The node that defines a name, through imports; None for another value."""
        for node in self.tree(module).body:
            if isinstance(node, _FUNCTIONS + (ast.ClassDef,)) and (
                node.name == name
            ):
                return node
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and (node.module or "").startswith("tessera")
            ):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        try:
                            return self.definition(node.module, alias.name)
                        except FileNotFoundError:
                            return None  # made by the build
        return None

    def public_names(self, module):
        """Those in __all__, or all that the module defines without underscore."""
        tree = self.tree(module)
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and getattr(node.targets[0], "id", "") == "__all__"
            ):
                return list(ast.literal_eval(node.value))
        return [
            node.name
            for node in tree.body
            if isinstance(node, _FUNCTIONS + (ast.ClassDef,))
            and not node.name.startswith("_")
        ]


def python_page(package, module):
    """A page: the docstring of a module, and of each public name in it."""
    page = ["# " + module, "", _docstring(package.tree(module)), ""]
    for name in package.public_names(module):
        node = package.definition(module, name)
        if node is None:
            continue
        if isinstance(node, ast.ClassDef):
            page += _class_lines(name, node)
        else:
            page += [
                "## " + name,
                "",
                "```python",
                _signature(node),
                "```",
                "",
                _docstring(node),
                "",
            ]
    return "\n".join(page)
