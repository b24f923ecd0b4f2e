# SPDX-License-Identifier: Apache-2.0
"""cc_library, cc_binary and cc_test, with the headers of others precompiled.

Most of the time to compile a file goes to the headers of Abseil, GoogleTest,
gRPC and LibTorch. These rules are Bazel's own with one more attribute:

    precompiled = "abseil"    for everything, and the default
    precompiled = "grpc"      with gRPC and protobuf
    precompiled = "libtorch"  with LibTorch; for dependents of @libtorch

Tests and what only tests use (`testonly`) read GoogleTest's headers with them.

With --define=units=large (.bazelrc), the sources of a target are compiled as a
few files, see translation_units.bzl. `own_units` names sources that must be
compiled by themselves all the same.
"""

load(
    ":copts.bzl",
    "LIBTORCH_COPTS",
    "LIBTORCH_WARNINGS",
    "TEST_COPTS",
    "here",
    "precompiled_copts",
)
load(":translation_units.bzl", "translation_units")

def _in_units(attributes, is_test):
    own_units = attributes.pop("own_units", [])
    srcs = attributes.get("srcs", [])
    joined = [
        source
        for source in srcs
        if source.endswith(".cc") and source not in own_units
    ]
    if len(joined) < 2:
        return attributes
    units = attributes["name"] + "_units"
    translation_units(
        name = units,
        testonly = is_test,
        srcs = joined,
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    others = [source for source in srcs if source not in joined]
    return dict(attributes, srcs = select({
        here("//third_party/precompiled:large_units"): [":" + units] + others,
        "//conditions:default": srcs,
    }))

def _precompiled(attributes, is_test):
    attributes = _in_units(attributes, is_test)
    name = attributes.pop("precompiled", "abseil")
    copts = attributes.pop("copts", [])
    deps = attributes.pop("deps", [])
    if name == "libtorch" and not is_test:
        # @libtorch brings a header along.
        return dict(attributes, copts = LIBTORCH_COPTS + copts, deps = deps)
    if name == "libtorch":
        copts = LIBTORCH_WARNINGS + copts
    if is_test:
        name += "_test"
        copts = TEST_COPTS + copts
    target = Label("//third_party/precompiled:" + name)
    header = "%s/%s.h" % (target.package, name)
    if target.workspace_root:
        # Another workspace uses this one.
        header = "%s/%s" % (target.workspace_root, header)
    return dict(
        attributes,
        copts = precompiled_copts(header) + copts,
        deps = deps + [target],
    )

def cc_library(**attributes):
    is_test = attributes.get("testonly", False)
    native.cc_library(**_precompiled(attributes, is_test))

def cc_binary(**attributes):
    is_test = attributes.get("testonly", False)
    native.cc_binary(**_precompiled(attributes, is_test))

def cc_test(**attributes):
    native.cc_test(**_precompiled(attributes, True))
