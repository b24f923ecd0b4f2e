# SPDX-License-Identifier: Apache-2.0
"""gcc_headers: all headers below some libraries, read by g++.

clang compiles this project. Users may have g++, which then reads the headers
that are installed, and finds other mistakes than clang. Those of programs and of
CUDA (fsdp/mesh/nccl_backend.h) are not among them.
"""

_COMPILE = """
g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Werror "$@"
"""

def _gcc_headers_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    ours = sorted([
        header.short_path
        for header in context.headers.to_list()
        if header.extension == "h" and
           not header.short_path.startswith("../") and
           not header.short_path.startswith("third_party/")
    ])
    source = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.write(
        source,
        "".join(["#include \"%s\"\n" % name for name in ours]),
    )
    done = ctx.actions.declare_file(ctx.label.name + ".done")
    arguments = ctx.actions.args()
    arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add_all(context.quote_includes, before_each = "-iquote")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add_all(ctx.attr.copts)
    arguments.add(source)
    ctx.actions.run_shell(
        command = _COMPILE + 'touch "%s"' % done.path,
        arguments = [arguments],
        inputs = depset([source], transitive = [context.headers]),
        outputs = [done],
        mnemonic = "GccHeaders",
        use_default_shell_env = True,
        progress_message = "Reading %d headers with g++" % len(ours),
    )
    return [DefaultInfo(files = depset([done]))]

# Builds if g++ accepts them.
gcc_headers = rule(
    implementation = _gcc_headers_impl,
    attrs = {
        "copts": attr.string_list(doc = "More flags."),
        "deps": attr.label_list(
            doc = "Libraries; the headers of what they depend on count too.",
            mandatory = True,
            providers = [CcInfo],
        ),
    },
)
