"""The flags of a file that reads a precompiled header."""

def precompiled_copts(header):
    """Has the compiler read a header of precompiled_header first.

    Args:
      header: its path below the folder of built files.

    Returns:
      flags for `copts`; `deps` must name the header's target too.
    """
    return ["-include", "$(BINDIR)/" + header]

# LibTorch's inline functions and macros convert as they like, where the compiler
# cannot tell that they come from a system header.
LIBTORCH_WARNINGS = ["-Wno-conversion", "-Wno-sign-conversion"]

# For what depends on @libtorch, which brings the header along.
LIBTORCH_COPTS = LIBTORCH_WARNINGS + precompiled_copts(
    "external/libtorch/libtorch_precompiled.h",
)
