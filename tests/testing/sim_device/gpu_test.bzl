# SPDX-License-Identifier: Apache-2.0
"""gpu_test: a test that requires a GPU, and the same on the simulated device."""

load("//third_party/precompiled:cc.bzl", "cc_test")

def gpu_test(name, tags, deps, **attributes):
    """Makes `name`, with the tag gpu, and `name`_on_sim, with the tag sim.

    Args:
      name: of the test on a GPU.
      tags: of both.
      deps: of both, without a backend.
      **attributes: of both, as of cc_test.
    """
    cc_test(
        name = name,
        tags = tags + ["gpu"],
        deps = deps + ["//fsdp:nccl"],
        **attributes
    )
    cc_test(
        name = name + "_on_sim",
        env = {"TESSERA_SIM_DEVICE": "1"},
        tags = tags + ["sim"],
        deps = deps + ["//tests/testing/sim_device"],
        **attributes
    )
