# SPDX-License-Identifier: Apache-2.0
"""Compares the results of two trainers, each in its folder."""

import json

import numpy
from harness import expect

DTYPES = {"float32": numpy.float32, "float64": numpy.float64}
# Relative for losses, absolute for parameters.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-3}
# Two roundings of a gradient's largest number.
BFLOAT16_ROUNDING = 2**-7


def values(folder, prefix, dtype):
    """name -> flat values."""
    return {
        path.name[len(prefix) : -len(".bin")]: numpy.fromfile(path, dtype)
        for path in sorted(folder.glob(f"{prefix}*.bin"))
    }


def read(ours, theirs, name):
    """The results that both wrote as JSON."""
    return [
        json.loads((folder / f"{name}.json").read_text())
        for folder in (ours, theirs)
    ]


def tolerance_of(config):
    if config["optimizer"] == "fused_adamw" and config["tp"] == 1:
        return 0.0
    return TOLERANCE[config["param_dtype"] or config["dtype"]]


def gradient_tolerance_of(config):
    """Under tensor parallelism the bits may differ: PyTorch's activations are
    DTensors within a module and tensors between modules, so the gradient of one
    input of three projections is the sum of three sums over the ranks. Here it
    is one sum over the ranks of the sum of the three. PyTorch 2.15 sums the
    gradients of Llama's norms in another order than LibTorch 2.11.
    """
    if config["tp"] == 1 and config["same_bits"]:
        return 0.0
    if config["param_dtype"]:
        return BFLOAT16_ROUNDING
    return TOLERANCE[config["dtype"]]


def compare_training(
    ours, theirs, dtype, tolerance, first_step=0, parameter_tolerance=None
):
    """Returns the largest differences of losses and of parameters.

    Ours may have begun at a later step than theirs. Parameters have the
    tolerance of the losses if they have none.
    """
    if parameter_tolerance is None:
        parameter_tolerance = tolerance
    our_losses, their_losses = (
        numpy.fromfile(folder / "losses.bin") for folder in (ours, theirs)
    )
    their_losses = their_losses[first_step:]
    expect(our_losses.shape == their_losses.shape, "numbers of steps differ")
    losses = float((abs(our_losses - their_losses) / abs(their_losses)).max())
    ours, theirs = (values(f, "param.", dtype) for f in (ours, theirs))
    expect(ours.keys() == theirs.keys(), "parameters of other names")
    parameters = max(
        float(abs(ours[name] - theirs[name]).max()) for name in theirs
    )
    expect(
        losses <= tolerance and parameters <= parameter_tolerance,
        f"losses differ by {losses:.2g}, parameters by {parameters:.2g}; "
        f"allowed {tolerance} and {parameter_tolerance}",
    )
    return {"losses": losses, "parameters": parameters}
