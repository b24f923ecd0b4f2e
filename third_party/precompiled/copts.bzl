# SPDX-License-Identifier: Apache-2.0
"""The flags of a file that reads a precompiled header."""

def precompiled_copts(header):
    """Has the compiler read a header of precompiled_header first.

    Args:
      header: its path below the folder of built files.

    Returns:
      flags for `copts`; `deps` must name the header's target too.
    """
    return ["-include", "$(BINDIR)/" + header]

# LibTorch's inline functions and macros convert implicitly, and the compiler cannot
# always tell that they come from a system header.
LIBTORCH_WARNINGS = ["-Wno-conversion", "-Wno-sign-conversion"]

# For targets that depend on @libtorch, which brings the header along.
LIBTORCH_COPTS = LIBTORCH_WARNINGS + precompiled_copts(
    "external/libtorch/libtorch_precompiled.h",
)

def here(label):
    """The label of a target here, for `select` in packages of any repository."""
    found = Label(label)
    return "@%s//%s:%s" % (found.workspace_name, found.package, found.name)

# For tests and libraries that only tests use, in modes that optimise (.bazelrc).
TEST_COPTS = select({
    here("//third_party/precompiled:unoptimized_tests"): ["-O0"],
    "//conditions:default": [],
})
