# SPDX-License-Identifier: Apache-2.0
"""States that the tests save, functions that compare them, and marks for tests
that may be skipped."""

import concurrent.futures
import os
import subprocess
import sys

import pytest
import torch

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def requires_torch(version, what):
    """A mark that skips a test before this PyTorch version (major, minor)."""
    return pytest.mark.skipif(
        TORCH < version,
        reason=f"PyTorch {torch.__version__} is older than "
        f"{version[0]}.{version[1]}, which {what} requires",
    )


def make_state():
    """A state with all sorts of tensors and with objects."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 5, generator=generator)
    return {
        "model": {
            "layers.0.weight": weight,
            "bfloat": weight.bfloat16(),
            "transposed": weight.t(),
            "strided": weight[::2, 1::2],
            "scalar": torch.tensor(3),
            "empty": torch.empty(0, 3),
            "bool": weight > 0,
            "complex": torch.complex(weight, -weight).conj(),
            "float8": weight.to(torch.float8_e4m3fn),
        },
        "optim": {"lr": 0.125, "betas": (0.9, 0.95), "names": ["a", None]},
        "step": 7,
    }


def blank(state):
    """The same state without the values."""
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state.resolve_conj().contiguous())
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    return None


def row_major(tensor):
    """A tensor's elements as bytes."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def assert_same(found, expected, name="state"):
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, name
        assert found.shape == expected.shape, name
        assert torch.equal(row_major(found), row_major(expected)), name
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key in expected:
            assert_same(found[key], expected[key], f"{name}.{key}")
    else:
        assert found == expected, name


@pytest.fixture
def state():
    return make_state()


def run_ranks(num_ranks, script, *arguments):
    """Runs a script as torchrun's ranks; each must end without an error."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc_per_node={num_ranks}", script, *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:]


def assert_threads_read(checkpoint, name, expected):
    """Eight threads read rows of a tensor in an open checkpoint."""

    def read(i):
        row = i % len(expected)
        return torch.equal(checkpoint[name].torch(row), expected[row])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(64)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Fails skipped tests, except in a run with another PyTorch.

    tools/dev/torch_versions sets TESSERA_OTHER_TORCH for those.
    """
    outcome = yield
    report = outcome.get_result()
    if report.skipped and "TESSERA_OTHER_TORCH" not in os.environ:
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped here: {call.excinfo.value}"
