# SPDX-License-Identifier: Apache-2.0
"""Compares fsdp with FSDP2 of PyTorch 2.15, as parity_test does with 2.11.

Here are the cases in which the two versions differ, and the switches that 2.11
does not have.
"""

import cases
import parity_test
import torch
from harness import Suite
from harness import expect


def check_version():
    version = torch.__version__
    expect(version.startswith("2.15."), f"the judge is PyTorch {version}")


def main():
    suite = Suite("newest_test")
    if suite.case("PyTorch 2.15", check_version):
        parity_test.compare_all(suite, cases.NEWEST)
    else:
        suite.finish()


if __name__ == "__main__":
    main()
