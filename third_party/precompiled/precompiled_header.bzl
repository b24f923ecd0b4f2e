# SPDX-License-Identifier: Apache-2.0
"""precompiled_header: headers that are compiled once for all files.

A compiler spends most of its time in the headers of other libraries. What it
made of them it reads again where the flags are the same. Nothing but time
depends on it.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_ACTION = "c++-compile"

# clang instantiates the templates that the headers use here, once, and not in
# each file. Its output would name the folder of this action's sandbox and the
# times of files; therefore, paths are kept relative to -isysroot, which is the
# current folder for those that read the output (.bazelrc).
_COMPILE = """
case $("$1" --version) in
  *clang*)
    exec "$@" -fpch-instantiate-templates -Xclang -fno-pch-timestamp \\
      -Xclang -relocatable-pch -Xclang -isysroot -Xclang "$PWD" ;;
  *) exec "$@" ;;
esac
"""

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    info = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )
    context = info.compilation_context

    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(
        header,
        "".join(["#include <%s>\n" % name for name in ctx.attr.headers]),
    )
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    flags = (ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
             ctx.attr.copts)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        user_compile_flags = flags + ["-x", "c++-header"],
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    ctx.actions.run_shell(
        command = _COMPILE,
        arguments = [cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = _ACTION,
        )] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = _ACTION,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = _ACTION,
            variables = variables,
        ),
        inputs = depset(
            [header],
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
    )
    return [cc_common.merge_cc_infos(cc_infos = [
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([header, compiled]),
        )),
        CcInfo(compilation_context = context),
    ])]

# Its users include NAME.h by a flag (copts.bzl).
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(doc = "Those of all users."),
        "deps": attr.label_list(
            doc = "Libraries whose headers these are. Users compile with " +
                  "their flags, and do not link with them.",
            providers = [CcInfo],
        ),
        "headers": attr.string_list(doc = "As they are included, in order."),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
