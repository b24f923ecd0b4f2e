# SPDX-License-Identifier: Apache-2.0
"""What installed packages know about FSDP: files, dataclasses, questions.

accelerate is imported; the others are read as text, for importing them would
need all that they need.
"""

import ast
import contextlib
import dataclasses
import importlib.util
import io
import os
import pathlib
import re
import typing
import warnings
from unittest import mock

PACKAGES = ("accelerate", "transformers", "torchtitan", "trl", "composer")
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MARKS = ("fsdp", "fully_shard", "distributed_type", "parallelism")


def folder_of(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise AssertionError(f"{package} is not installed; see README.md")
    return pathlib.Path(spec.submodule_search_locations[0])


def config_files():
    """Files of a package that are about sharding, or might be."""
    for package in PACKAGES:
        for path in sorted(folder_of(package).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            text = path.read_text("utf-8", errors="replace").lower()
            if any(mark in text for mark in MARKS):
                yield package, path


def tree_of(package, path):
    return ast.parse((folder_of(package) / path).read_text("utf-8"))


SAMPLES = {"int": 1, "float": 0.5, "str": "x", "bool": False, "list": []}


def _sample(annotation):
    """For a field that is None: a value of its type; None for Python's types."""
    literals = re.findall(r"Literal\['([^']+)'", annotation)
    named = [v for k, v in SAMPLES.items() if annotation.startswith(k)]
    return (literals + named + [None])[0]


def _value(node, classes):
    """A field's default; a dict if it is itself a dataclass."""
    if isinstance(node, ast.Call):
        options = {k.arg: k.value for k in node.keywords}
        if "default" in options:
            return _value(options["default"], classes)
        factory = options.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return ast.literal_eval(factory.body)
        if isinstance(factory, ast.Name) and factory.id in classes:
            return fields_of(classes[factory.id], classes)
        return []
    return ast.literal_eval(node)


def fields_of(node, classes):
    """Names and defaults of a dataclass's public fields."""
    fields = {}
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or line.target.id[0] == "_":
            continue
        fields[line.target.id] = _value(line.value, classes)
        if fields[line.target.id] is None:
            fields[line.target.id] = _sample(ast.unparse(line.annotation))
    return fields


def dataclasses_of(package, path):
    return {
        node.name: node
        for node in tree_of(package, path).body
        if isinstance(node, ast.ClassDef)
    }


def torchtitan_sections():
    classes = dataclasses_of("torchtitan", "config/job_config.py")
    return fields_of(classes["JobConfig"], classes)


def composer_options(name):
    classes = dataclasses_of("composer", "utils/parallelism.py")
    return fields_of(classes[name], classes)


def composer_fsdp2_block(parallelism):
    """The FSDP2Config that Composer's Trainer makes of a map; None: it makes none.

    With FSDP_VERSION=2, by the source of its method and of the dataclasses.
    """
    classes = dataclasses_of("composer", "utils/parallelism.py").values()
    (parse,) = (
        line
        for line in dataclasses_of("composer", "trainer/trainer.py")[
            "Trainer"
        ].body
        if getattr(line, "name", "") == "_parse_parallelism_config"
    )
    scope = {
        "Any": typing.Any,
        "DeviceMesh": object,
        "Optional": typing.Optional,
        "dataclass": dataclasses.dataclass,
        "field": dataclasses.field,
        "fields": dataclasses.fields,
        "os": os,
        "warnings": warnings,
    }
    module = ast.Module([*classes, parse], [])
    exec(compile(module, "composer", "exec"), scope)
    with mock.patch.dict(os.environ, FSDP_VERSION="2"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = scope["_parse_parallelism_config"](None, parallelism)
    return None if made is None else made.fsdp2


def composer_trainer_arguments():
    classes = dataclasses_of("composer", "trainer/trainer.py")
    for line in classes["Trainer"].body:
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            arguments = line.args.args + line.args.kwonlyargs
            return {a.arg for a in arguments} - {"self"}
    raise AssertionError("Composer's Trainer has no __init__")


def _is_fsdp_config(node):
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name == "fsdp_config"


def transformers_options():
    """The keys of fsdp_config that TrainingArguments reads or sets."""
    names = set()
    for node in ast.walk(tree_of("transformers", "training_args.py")):
        key = None
        if isinstance(node, ast.Subscript) and _is_fsdp_config(node.value):
            key = node.slice
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in (
                "get",
                "pop",
                "setdefault",
            ):
                key = node.args[0] if _is_fsdp_config(function.value) else None
        elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
            key = node.left if _is_fsdp_config(node.comparators[0]) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            names.add(key.value)
    return names


def accelerate_launch_options():
    """--fsdp_... of `accelerate launch`: the keys of accelerate's map."""
    names = set()
    for node in ast.walk(tree_of("accelerate", "commands/launch.py")):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            if name.startswith("--fsdp_") and name[2:].isidentifier():
                names.add(name[2:])
    return names


MACHINE = "Which type of machine"
VERSION = "What should be your FSDP version"
USE_FSDP = "Do you want to use FullyShardedDataParallel"
# Answers that lead to other questions than FSDP's.
FIXED = (MACHINE, VERSION, USE_FSDP, "Do you want to use DeepSpeed")


class Respondent:
    """Answers accelerate's questions: the first answer, except for `chosen`."""

    def __init__(self, version, chosen):
        self.fixed = {MACHINE: "multi-GPU", VERSION: version, USE_FSDP: True}
        self.chosen = chosen
        self.asked = {}  # text: all answers

    def _answer(self, text, answers):
        self.asked[text] = answers
        for start, answer in self.fixed.items():
            if text.startswith(start):
                return answer
        return self.chosen.get(text, answers[0])

    def options(self, text, options=(), convert_value=None, default=0):
        order = list(options)
        order.insert(0, order.pop(default))
        answer = self._answer(text, order)
        index = list(options).index(answer)
        return convert_value(index) if convert_value else index

    def field(self, text, convert_value=None, default=None, **_):
        name = getattr(convert_value, "__name__", "str")
        if name == "_convert_yes_no_to_bool":
            return self._answer(text, [bool(default), not default])
        if name == "int":
            return self._answer(text, [1 if default is None else default, 2])
        return self._answer(text, ["Block" if default is None else default])


def _ask(version, chosen):
    from accelerate.commands.config import cluster

    respondent = Respondent(version, chosen)
    replaced = {
        "_ask_options": respondent.options,
        "_ask_field": respondent.field,
    }
    # Configs may choose what this machine does not have.
    for name in ("fp8", "msamp", "torchao", "transformer_engine"):
        replaced[f"is_{name}_available"] = lambda: True
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(cluster, name, function))
        config = cluster.get_cluster_input()
    return config, respondent.asked


def questionnaire(version):
    """(what was answered, the config) for every answer of every question."""
    work = [({}, set())]
    while work:
        chosen, before = work.pop()
        try:
            config, asked = _ask(version, chosen)
        except ValueError:
            continue  # accelerate refuses an answer of its own: no file
        yield chosen, config
        for text, answers in asked.items():
            if text in before or text.startswith(FIXED):
                continue
            for answer in answers[1:]:
                work.append(({**chosen, text: answer}, set(asked)))
