# SPDX-License-Identifier: Apache-2.0
"""Subclasses of torch.Tensor that have no memory themselves, like those in
torchao: tensors that answer for others."""

import enum

import torch


class Rounding(enum.Enum):
    NEAREST = "nearest"


class Wrapper(torch.Tensor):
    """Stands for the tensor `inner`."""

    @staticmethod
    def __new__(cls, inner, *unused):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype
        )

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, tensors, *unused):
        return cls(tensors["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def unwrap(value):
            return value.inner if isinstance(value, cls) else value

        def wrap(value):
            return cls(value) if isinstance(value, torch.Tensor) else value

        tree_map = torch.utils._pytree.tree_map
        result = function(*tree_map(unwrap, args), **(kwargs or {}))
        # An operator that writes into an argument returns that argument.
        if function._schema.is_mutable:
            return args[0]
        return tree_map(wrap, result)


class Codes(torch.Tensor):
    """8 bits and a scale for each number, as an optimizer keeps state; it can
    be copied from another one and converted, and nothing else."""

    @staticmethod
    def __new__(cls, codes, scale, rounding=Rounding.NEAREST):
        return torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=torch.float32
        )

    def __init__(self, codes, scale, rounding=Rounding.NEAREST):
        self.codes = codes
        self.scale = scale
        self.rounding = rounding

    def __tensor_flatten__(self):
        return ["codes", "scale"], [self.rounding]

    @classmethod
    def __tensor_unflatten__(cls, tensors, rest, *unused):
        return cls(tensors["codes"], tensors["scale"], *rest)

    def dense(self):
        return self.codes.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        aten = torch.ops.aten
        if function is aten.copy_.default:
            target, source = args
            if isinstance(target, cls) and isinstance(source, cls):
                target.codes.copy_(source.codes)
                target.scale.copy_(source.scale)
            elif isinstance(target, cls):
                target.scale.copy_(source.abs().max() / 127)
                target.codes.copy_((source / target.scale).round())
            else:
                target.copy_(source.dense())
            return target
        if function in (
            *(aten.detach.default, aten._to_copy.default, aten.alias.default),
        ):
            return cls(args[0].codes, args[0].scale, args[0].rounding)
        if function is aten.is_pinned.default:
            return False
        raise NotImplementedError(f"{function} of Codes")


def to_codes(tensor):
    """The tensor as Codes."""
    scale = tensor.abs().max() / 127
    return Codes((tensor / scale).round().to(torch.int8), scale)
