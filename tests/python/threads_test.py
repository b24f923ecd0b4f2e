# SPDX-License-Identifier: Apache-2.0
"""Signals that interrupt calls in other threads, at any moment."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from tessera import _threads


@pytest.fixture
def ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_results_come_in_order():
    assert _threads.run_all([lambda: 1, lambda: 2], lambda: None) == [1, 2]


def test_a_failure_stops_the_other_calls():
    stop = threading.Event()

    def fail():
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        _threads.run_all([stop.wait, fail], stop.set)


def test_ctrl_c_at_any_moment_ends_the_calls(ctrl_c):
    generator = random.Random()
    for _ in range(1000):
        stop = threading.Event()
        ended = []

        def work():
            until = time.perf_counter() + generator.random() * 2e-4
            while time.perf_counter() < until:
                pass
            ctrl_c()
            ended.append(stop.wait(30))

        with pytest.raises(KeyboardInterrupt):
            _threads.run_all([work], stop.set)
        assert ended == [True]


def test_ctrl_c_interrupts_the_wait_for_a_line(ctrl_c):
    process = subprocess.Popen(
        [sys.executable, "-c", "print('begins', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = iter(_threads.Lines(process.stdout))
    assert next(lines) == "begins\n"
    ctrl_c_later = threading.Timer(0.2, ctrl_c)
    ctrl_c_later.start()
    with pytest.raises(KeyboardInterrupt):
        next(lines)
    process.stdin.close()
    process.wait()
