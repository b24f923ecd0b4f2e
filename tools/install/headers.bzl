# SPDX-License-Identifier: Apache-2.0
"""public_headers: the headers of this workspace that a user's program reads.

They are those that are named and those that these include, as the compiler
finds them. A header that only the sources of a library include is not there.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_ACTION = "c++-compile"

def _public_headers_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context

    source = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.write(
        source,
        "".join(['#include "%s"\n' % name for name in ctx.attr.headers]),
    )
    found = ctx.actions.declare_file(ctx.label.name + ".d")

    # -M: lists the included files.
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ["-M", "-w"]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = source.path,
        output_file = found.path,
        user_compile_flags = flags,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
    )
    environment = cc_common.get_environment_variables(
        feature_configuration = features,
        action_name = _ACTION,
        variables = variables,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = _ACTION,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = _ACTION,
            variables = variables,
        ),
        env = environment,
        inputs = depset(
            [source],
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [found],
        mnemonic = "CppPublicHeaders",
        progress_message = "Finding the headers of %s" % ctx.label,
    )

    output = ctx.actions.declare_directory(ctx.label.name)
    include_dirs = depset(transitive = [
        context.quote_includes,
        context.includes,
        context.system_includes,
    ]).to_list()
    ctx.actions.run(
        executable = "/usr/bin/env",
        arguments = ["python3", "-B", ctx.file._copy.path, output.path] +
                    [found.path] + include_dirs,
        inputs = depset(
            [ctx.file._copy, found, source],
            transitive = [context.headers],
        ),
        outputs = [output],
        mnemonic = "CopyHeaders",
    )
    return [DefaultInfo(files = depset([output]))]

# Makes a folder NAME in which each header lies under the name by which it is
# included.
public_headers = rule(
    implementation = _public_headers_impl,
    attrs = {
        "deps": attr.label_list(
            doc = "The libraries that have them.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "headers": attr.string_list(
            doc = "What users include, as they include it.",
            mandatory = True,
        ),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
        "_copy": attr.label(
            allow_single_file = True,
            default = "//tools/install:copy_headers.py",
        ),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
