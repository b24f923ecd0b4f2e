"""How what includes LibTorch's headers is compiled."""

# The header is found in its compiled form; see @libtorch. Files still include
# what they use.
#
# LibTorch's inline functions and macros convert as they like, where the
# compiler cannot tell that they come from a system header.
FSDP_OWN_COPTS = [
    "-include",
    "libtorch_precompiled.h",
    "-Wno-conversion",
    "-Wno-sign-conversion",
]

# For targets of any project: what is an error here is a warning there.
FSDP_COPTS = FSDP_OWN_COPTS + ["-Wno-error"]
