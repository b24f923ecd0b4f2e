# SPDX-License-Identifier: Apache-2.0
"""How a binary that is copied to other machines is linked."""

# Everything but the C library is in the binary: our dependencies are archives
# anyway, and these two are the compiler's own. Bazel's toolchain appends
# -lstdc++ after these; nothing is left for it to resolve, so --as-needed drops
# the shared one.
STATIC_RUNTIME_LINKOPTS = [
    "-static-libgcc",
    "-Wl,-Bstatic",
    "-lstdc++",
    "-Wl,-Bdynamic",
    "-Wl,--as-needed",
]
