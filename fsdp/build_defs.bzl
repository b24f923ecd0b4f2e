"""How what includes LibTorch's headers is compiled."""

# The header is found in its compiled form; see @libtorch. Files include what
# they use all the same.
#
# LibTorch's inline functions and macros convert as they like, where the
# compiler cannot tell that they come from a system header.
FSDP_COPTS = [
    "-include",
    "libtorch_precompiled.h",
    "-Wno-conversion",
    "-Wno-sign-conversion",
]
