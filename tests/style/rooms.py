# SPDX-License-Identifier: Apache-2.0
"""The rules about rooms: folders, their Bazel targets, and who includes whom.

A room is a folder with sources. The deps of its targets say what it may
include, and their visibility says who may depend on it, so a wrong edge does
not build. The table in CONTRIBUTING.md is the same seen from above.
"""

import ast
import os
import re

from source_tree import CODE, PRODUCT

MAX_SOURCES = 25

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include "([^"]+)"', re.M)


class Target:
    """One rule of a BUILD file, as far as it is written out."""

    def __init__(self, package, line, attributes):
        self.package, self.line = package, line
        self.name = attributes.get("name", "")
        self.deps = [self._label(dep) for dep in attributes.get("deps", [])]
        self.sources = [
            package + "/" + source
            for key in ("srcs", "hdrs")
            for source in attributes.get(key, [])
            if source.endswith(CODE) and not source.startswith((":", "/"))
        ]

    def _label(self, dep):
        if dep.startswith(":"):
            return "//" + self.package + dep
        if dep.startswith("//") and ":" not in dep:
            return dep + ":" + dep.split("/")[-1]
        return dep


def _value(node, names):
    """A list of strings or a string; what is computed counts as empty."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(item, names) for item in node.elts]
    if isinstance(node, ast.Name):
        return names.get(node.id, [])
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, names), _value(node.right, names)
        return (
            left + right
            if isinstance(left, list) and isinstance(right, list)
            else []
        )
    return []


def targets(tree):
    for path, text in tree.items():
        if os.path.basename(path) != "BUILD.bazel" or text is None:
            continue
        names = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(
                node.targets[0], ast.Name
            ):
                names[node.targets[0].id] = _value(node.value, names)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                yield Target(
                    os.path.dirname(path),
                    node.lineno,
                    {
                        keyword.arg: _value(keyword.value, names)
                        for keyword in node.value.keywords
                    },
                )


def _includes(tree, path):
    return [
        include
        for include in _INCLUDE.findall(tree.get(path) or "")
        if include in tree
    ]


def includes_are_declared(tree):
    """A file includes headers of its own target or of a direct dependency; one
    without sources stands for its own dependencies."""
    all_targets = list(targets(tree))
    headers = {
        "//%s:%s" % (target.package, target.name): {
            s for s in target.sources if s.endswith(".h")
        }
        for target in all_targets
    }
    for target in all_targets:
        if not target.sources:
            headers["//%s:%s" % (target.package, target.name)].update(
                *(headers.get(dep, ()) for dep in target.deps)
            )
    findings = []
    for target in all_targets:
        if target.package.split("/")[0] not in PRODUCT:
            continue
        seen = set(target.sources).union(
            *(headers.get(dep, ()) for dep in target.deps)
        )
        for source in target.sources:
            for include in _includes(tree, source):
                if include not in seen:
                    findings.append(
                        "%s:1: includes %s, which is neither in its target "
                        "//%s:%s nor in a direct dependency of it"
                        % (source, include, target.package, target.name)
                    )
    return findings


def pairs(tree):
    """The graph of .h and .cc of one name, of the product."""
    graph = {}
    for path in tree:
        if path.endswith(CODE) and path.split("/")[0] in PRODUCT:
            graph.setdefault(os.path.splitext(path)[0], set())
    for path in tree:
        own = os.path.splitext(path)[0]
        if path.endswith(CODE) and own in graph:
            graph[own] |= {
                os.path.splitext(include)[0]
                for include in _includes(tree, path)
            } & set(graph)
            graph[own].discard(own)
    return graph


def rooms(graph):
    """The same graph between folders."""
    result = {os.path.dirname(pair): set() for pair in graph}
    for pair, included in graph.items():
        own = os.path.dirname(pair)
        result[own] |= {os.path.dirname(other) for other in included} - {own}
    return result


def circles(graph):
    """The strongly connected components of more than one node (Tarjan)."""
    index, low, stack, result = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                result.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return result


def no_circles(tree):
    graph = pairs(tree)
    return [
        "%s:1: is in a circle: %s" % (circle[0], ", ".join(circle))
        for circle in circles(graph) + circles(rooms(graph))
    ]


def rooms_are_small(tree):
    sizes = {}
    for pair in pairs(tree):
        room = os.path.dirname(pair)
        sizes[room] = sizes.get(room, 0) + 1
    return [
        "%s:1: has %d sources, more than %d" % (room, size, MAX_SOURCES)
        for room, size in sizes.items()
        if size > MAX_SOURCES
    ]


_ROW = re.compile(r"^\| `([a-z_0-9/]+)` \| [^|]* \| ([^|]*) \|$", re.M)


def layers(tree):
    """Folder to folders that it may use, from the table in CONTRIBUTING.md."""
    text = tree.get("CONTRIBUTING.md") or ""
    table = text[text.find("| folder |") :].split("\n\n")[0]
    return {
        folder: ["dcp/base"] + re.findall(r"`([a-z_0-9/]+)`", uses)
        for folder, uses in _ROW.findall(table)
    }


def layers_are_kept(tree):
    """No target depends on more than the row of its folder says."""
    table = layers(tree)

    def row(package):
        while package and package not in table:
            package = os.path.dirname(package)
        return package

    findings = set()
    for target in targets(tree):
        own = row(target.package)
        if target.package.split("/")[0] not in PRODUCT:
            continue
        for dep in target.deps:
            package = dep[2:].split(":")[0]
            if (
                not dep.startswith("//")
                or row(package) == own
                or package.split("/")[0] not in PRODUCT
            ):
                continue
            if not any(
                (package + "/").startswith(used + "/")
                for used in table.get(own, [])
            ):
                findings.add(
                    "%s/BUILD.bazel:%d: uses %s, which CONTRIBUTING.md does "
                    "not grant to %s"
                    % (target.package, target.line, package, own or "it")
                )
    return sorted(findings)


def summary(tree):
    graph = pairs(tree)
    folders = rooms(graph)
    return "%d rooms with %d arrows, %d sources with %d arrows, %d circles" % (
        len(folders),
        sum(map(len, folders.values())),
        len(graph),
        sum(map(len, graph.values())),
        len(circles(graph)) + len(circles(folders)),
    )


RULES = (
    includes_are_declared,
    layers_are_kept,
    no_circles,
    rooms_are_small,
)
