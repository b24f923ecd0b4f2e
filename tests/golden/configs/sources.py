# SPDX-License-Identifier: Apache-2.0
"""Executes parts of checkouts of programs, for make_configs.py."""

import ast
import importlib.util
import inspect
import math
import pathlib
import sys
import types

import torch

SOURCES = pathlib.Path(sys.argv[1])
STEPS = 100


class Anything(types.ModuleType):
    """A module in which every name is a class that takes any arguments."""

    __path__ = []
    __all__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda self, *a, **k: None})
        setattr(self, name, made)
        return made


def stand_in(*names):
    for name in names:
        sys.modules[name] = Anything(name)


def module_at(name, path):
    """Executes one file as the module `name`, not its package."""
    spec = importlib.util.spec_from_file_location(name, SOURCES / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def word(dtype):
    return None if dtype is None else str(dtype).removeprefix("torch.")


def rates(make, lr, steps):
    """The factor of the rate in each step, from a torch scheduler."""

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    factors = []
    for _ in range(steps):
        factors.append(optimizer.param_groups[0]["lr"] / lr)
        optimizer.step()
        scheduler.step()
    return factors


def torch_defaults(path, given):
    """The arguments of an optimizer of torch with those of a config."""

    signature = inspect.signature(getattr(torch.optim, path.split(".")[-1]))
    known = {k: p.default for k, p in signature.parameters.items()}
    merged = {
        k: given.get(k, known[k])
        for k in ("lr", "weight_decay", "betas", "eps")
    }
    return {
        **{k: float(merged[k]) for k in ("lr", "weight_decay", "eps")},
        "betas": [float(b) for b in merged["betas"]],
    }


def functions_of(path, names):
    """Functions of a file that cannot be imported, with math and torch."""

    tree = ast.parse((SOURCES / path).read_text())
    wanted = [
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef) and n.name in names
    ]
    scope = {
        "math": math,
        "torch": torch,
        "Optimizer": torch.optim.Optimizer,
        "LambdaLR": torch.optim.lr_scheduler.LambdaLR,
    }
    exec(compile(ast.Module(wanted, []), path, "exec"), scope)
    return {name: scope[name] for name in names}
