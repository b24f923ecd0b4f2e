# SPDX-License-Identifier: Apache-2.0
"""glibc_stubs: a folder with stubs of an older glibc, for the linker to search."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _glibc_stubs_impl(ctx):
    stubs = ctx.actions.declare_directory(ctx.label.name)
    toolchain = find_cpp_toolchain(ctx)
    compiler = [toolchain.compiler_executable]
    if toolchain.target_gnu_system_name != "local":
        compiler.append("--target=" + toolchain.target_gnu_system_name)
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [
            "-B",
            ctx.file._make_stubs.path,
            stubs.path,
        ] + [library.path for library in ctx.files.libraries] + ["--"] + compiler,
        inputs = [ctx.file._make_stubs] + ctx.files.libraries,
        outputs = [stubs],
        mnemonic = "GlibcStubs",
        progress_message = "Making stubs of an older glibc",
        use_default_shell_env = True,
    )
    linker_input = cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = depset(["-L" + stubs.path]),
        additional_inputs = depset([stubs]),
    )
    return [
        DefaultInfo(files = depset([stubs])),
        CcInfo(linking_context = cc_common.create_linking_context(
            linker_inputs = depset([linker_input]),
        )),
    ]

# Programs that depend on it are linked with the stubs.
glibc_stubs = rule(
    implementation = _glibc_stubs_impl,
    attrs = {
        "libraries": attr.label_list(
            allow_files = True,
            doc = "Those of the installed glibc and compiler.",
        ),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
        "_make_stubs": attr.label(
            allow_single_file = True,
            default = "//third_party/glibc:make_stubs.py",
        ),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
