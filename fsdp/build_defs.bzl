# SPDX-License-Identifier: Apache-2.0
"""How a program that uses fsdp is compiled."""

load("//third_party/precompiled:copts.bzl", "LIBTORCH_COPTS")

# For targets of any project: what is an error here is a warning there.
FSDP_COPTS = LIBTORCH_COPTS + ["-Wno-error"]
