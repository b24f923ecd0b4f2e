"""How what includes LibTorch's headers is compiled."""

# The header is found in its compiled form; see @libtorch. Files include what
# they use all the same.
#
# LibTorch's inline functions and macros convert as they like, where the
# compiler cannot tell that they come from a system header.
FSDP_OWN_COPTS = [
    "-include",
    "libtorch_precompiled.h",
    "-Wno-conversion",
    "-Wno-sign-conversion",
]

# For anybody's targets: what is an error here is a warning there.
FSDP_COPTS = FSDP_OWN_COPTS + ["-Wno-error"]
