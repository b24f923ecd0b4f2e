# SPDX-License-Identifier: Apache-2.0
"""compiled_once: a library that all modes link as one file, without sanitizers.

Bazel compiles it optimised, as it compiles programs that it runs itself. Debian's
archives were not compiled with sanitizers either.
"""

def _linker_inputs(target):
    return target[CcInfo].linking_context.linker_inputs

def _compiled_once_impl(ctx):
    # Everything that is direct comes first on the linker's command line.
    return [CcInfo(linking_context = cc_common.create_linking_context(
        linker_inputs = depset(
            _linker_inputs(ctx.attr.library).to_list(),
            transitive = [_linker_inputs(dep) for dep in ctx.attr.deps],
            order = "topological",
        ),
    ))]

compiled_once = rule(
    implementation = _compiled_once_impl,
    attrs = {
        "deps": attr.label_list(
            doc = "Archives with other files, or with the same ones, of which " +
                  "the linker then takes none.",
            providers = [CcInfo],
        ),
        "library": attr.label(
            cfg = "host",
            mandatory = True,
            providers = [CcInfo],
        ),
    },
)
