"""How what includes LibTorch's headers is compiled."""

# LibTorch's inline functions and macros convert as they like, where the
# compiler cannot tell that they come from a system header.
FSDP_COPTS = [
    "-Wno-conversion",
    "-Wno-sign-conversion",
]
