# SPDX-License-Identifier: Apache-2.0
"""Files for aarch64 in a build for another machine, and archives for both."""

load("//third_party/precompiled:copts.bzl", "here")

_LIBRARIES = "@debian_aarch64//:libraries/"

def for_machine(names, aarch64 = None):
    """Files of Debian's packages for the machine that programs are built for.

    Args:
      names: of this repository, for x86-64.
      aarch64: labels of the other ones, by default Debian's of the same names.

    Returns:
      labels, chosen by `select`.
    """
    return select({
        here("//third_party/aarch64:target"): aarch64 or [
            _LIBRARIES + name
            for name in names
        ],
        "//conditions:default": names,
    })

def _aarch64_impl(_settings, _attr):
    return {
        "//command_line_option:cpu": "aarch64",
        "//command_line_option:crosstool_top": "//third_party/aarch64:toolchain",
        "//command_line_option:host_crosstool_top": "@bazel_tools//tools/cpp:toolchain",
    }

_aarch64 = transition(
    implementation = _aarch64_impl,
    inputs = [],
    outputs = [
        "//command_line_option:cpu",
        "//command_line_option:crosstool_top",
        "//command_line_option:host_crosstool_top",
    ],
)

def _aarch64_files_impl(ctx):
    links = []
    runfiles = ctx.runfiles()
    for source in ctx.attr.srcs:
        runfiles = runfiles.merge(source[DefaultInfo].default_runfiles)
        for file in source.files.to_list():
            link = ctx.actions.declare_file(ctx.label.name + "/" + file.basename)
            ctx.actions.symlink(output = link, target_file = file)
            links.append(link)
    return [DefaultInfo(
        files = depset(links),
        runfiles = runfiles.merge(ctx.runfiles(links)),
    )]

# The files of `srcs`, built for aarch64, in a folder of this name.
aarch64_files = rule(
    implementation = _aarch64_files_impl,
    attrs = {
        "srcs": attr.label_list(
            allow_files = True,
            cfg = _aarch64,
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
