# SPDX-License-Identifier: Apache-2.0
"""The BUILD file of an external repository, in this workspace and in others."""

def write_build_file(rctx, substitutions = {}):
    """Writes BUILD.bazel from the attribute `build_file`.

    A template names this project's labels "@//...". Where another workspace
    uses this one as an external repository, they get that repository's name.

    Args:
      rctx: of the repository rule.
      substitutions: what else is replaced in the text, by what.
    """
    labels = {}
    name = Label("//third_party:build_file.bzl").workspace_name
    if name:
        labels['"@//'] = '"@%s//' % name
    rctx.template(
        "BUILD.bazel",
        rctx.attr.build_file,
        dict(substitutions, **labels),
        executable = False,
    )
