# SPDX-License-Identifier: Apache-2.0
"""Options of the chains; `bazel test --test_arg=--seconds=3600` passes them."""

import functools
import logging
import os
import pathlib
import random
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "python"))
sys.path.insert(0, str(HERE.parent / "testing"))


def pytest_addoption(parser):
    parser.addoption(
        "--seed", type=int, help="run the chain of this seed alone"
    )
    parser.addoption(
        "--seconds",
        type=float,
        default=0,
        help="run chains of random seeds for so long, and nothing else",
    )


def pytest_collection_modifyitems(config, items):
    goes_on = config.getoption("--seconds") > 0
    items[:] = [i for i in items if ("seeds" in i.fixturenames) == goes_on]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Runs the chain of a seed, once, with one daemon for all."""
    import chains
    import daemon

    logging.disable()  # PyTorch says much of each save and load.

    folder = tmp_path_factory.mktemp("daemon")
    server = daemon.Daemon(folder)
    reload = os.path.abspath(os.environ["TESSERA_RELOAD"])

    @functools.cache
    def run(seed):
        work = server.root / str(seed)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        with server.client() as client:
            one = chains.Chain(seed, work, client, reload)
            one.run()
        shutil.rmtree(work)
        return one

    yield run
    server.stop()


@pytest.fixture(scope="session")
def seeds():
    """Random seeds, which never end."""
    source = random.SystemRandom()
    return iter(lambda: source.randrange(1 << 31), None)
