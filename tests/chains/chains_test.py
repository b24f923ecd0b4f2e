# SPDX-License-Identifier: Apache-2.0
"""Random chains of conversions give the same states as PyTorch."""

import time

import pytest

# The first seeds, which run in continuous integration.
NUM_SEEDS = 60
# Those that found a fault, of the product or of this test.
FOUND = (1483712629, 29141166, 995039904)


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        all_seeds = [*range(NUM_SEEDS), *FOUND] if one is None else [one]
        metafunc.parametrize("seed", all_seeds)


def test_a_chain_gives_the_values_of_pytorch(chain, seed):
    chain(seed)


def test_most_chains_take_steps_and_few_are_refused(chain):
    """So that the test above is not one of refusals."""
    ran = [chain(seed) for seed in range(NUM_SEEDS)]
    assert sum(len(one.steps) > 0 for one in ran) > NUM_SEEDS * 0.7
    assert sum(one.refusal is not None for one in ran) < NUM_SEEDS * 0.3


def test_chains_of_random_seeds(chain, seeds, request):
    seconds = request.config.getoption("--seconds")
    deadline = time.monotonic() + seconds
    failed = []
    while time.monotonic() < deadline:
        seed = next(seeds)
        try:
            chain(seed)
        except Exception as error:
            print(f"--seed={seed}: {error}", flush=True)
            failed.append(seed)
    assert not failed, "--seed runs one of them again"
