# SPDX-License-Identifier: Apache-2.0
"""wheel: the wheel of the Python package, in a folder.

The name of a wheel has the version, which build_wheel asks of a program. A folder
may hold a file whose name Bazel does not know in advance.
"""

def _wheel_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    tools = [ctx.file._build, ctx.file._make_options, ctx.file._program]
    ctx.actions.run(
        executable = ctx.file._build,
        arguments = [
            folder.path,
            ctx.attr.machine,
            ctx.file._make_options.path,
            ctx.file._program.path,
        ] + [file.path for file in ctx.files.srcs],
        inputs = ctx.files.srcs + tools,
        outputs = [folder],
        mnemonic = "Wheel",
        progress_message = "Making the wheel %s" % ctx.label,
        use_default_shell_env = True,
    )
    return [DefaultInfo(
        files = depset([folder]),
        runfiles = ctx.runfiles([folder]),
    )]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "machine": attr.string(
            doc = "For which the programs are, as in a wheel's name.",
            mandatory = True,
        ),
        "srcs": attr.label_list(
            allow_files = True,
            doc = "Programs, shared libraries, texts, and sources.",
            mandatory = True,
        ),
        "_build": attr.label(
            allow_single_file = True,
            default = "//python:build_wheel",
        ),
        "_make_options": attr.label(
            allow_single_file = True,
            default = "//python:make_options",
        ),
        "_program": attr.label(
            allow_single_file = True,
            default = "//tools/dcp_convert:dcp-convert",
            doc = "A dcp-convert that runs on this machine.",
        ),
    },
)
