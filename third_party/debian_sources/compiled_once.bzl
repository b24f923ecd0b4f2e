# SPDX-License-Identifier: Apache-2.0
"""compiled_once: a library that all modes link as one file, without sanitizers.

Debian's archives were not compiled with sanitizers either.
"""

# The flags of all modes, for the machine of each.
_FLAGS = {
    "//command_line_option:" + option: value
    for option, value in {
        "compilation_mode": "opt",
        "copt": [],
        "cxxopt": ["-std=c++20"],
        "linkopt": [],
        "per_file_copt": [],
        "platform_suffix": "",
        "strip": "sometimes",
    }.items()
}

def _optimized_impl(_settings, _attr):
    return _FLAGS

_optimized = transition(
    implementation = _optimized_impl,
    inputs = [],
    outputs = _FLAGS.keys(),
)

def _linker_inputs(target):
    return target[CcInfo].linking_context.linker_inputs

def _compiled_once_impl(ctx):
    # Everything that is direct comes first on the linker's command line.
    return [CcInfo(linking_context = cc_common.create_linking_context(
        linker_inputs = depset(
            _linker_inputs(ctx.attr.library[0]).to_list(),
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
            cfg = _optimized,
            mandatory = True,
            providers = [CcInfo],
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
