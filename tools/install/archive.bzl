# SPDX-License-Identifier: Apache-2.0
"""static_archive: libraries of this workspace as one archive for other builds.

Bazel makes an archive of each cc_library. Other build systems get few: the
objects of all libraries below `deps`, without those of Debian's packages, which
their users install.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _inputs(deps):
    return depset(transitive = [
        dep[CcInfo].linking_context.linker_inputs
        for dep in deps
    ]).to_list()

def _static_archive_impl(ctx):
    elsewhere = {str(found.owner): True for found in _inputs(ctx.attr.without)}
    repositories = [ctx.label.workspace_name] + ctx.attr.repositories
    archives = []
    for found in _inputs(ctx.attr.deps):
        owner = found.owner
        if owner.workspace_name not in repositories or str(owner) in elsewhere:
            continue
        for library in found.libraries:
            archive = library.pic_static_library or library.static_library
            if archive and library.alwayslink == ctx.attr.alwayslink:
                archives.append(archive)
    if not archives:
        fail("%s: nothing is left to put into the archive" % ctx.label)

    toolchain = find_cpp_toolchain(ctx)
    output = ctx.actions.declare_file("lib%s.a" % ctx.label.name)

    # Members in different archives may have the same name: ar keeps both.
    script = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(script, "\n".join(
        ["CREATE " + output.path] +
        ["ADDLIB " + archive.path for archive in archives] +
        ["SAVE", "END", ""],
    ))
    ctx.actions.run_shell(
        command = '"$1" -M < "$2"',
        arguments = [toolchain.ar_executable, script.path],
        inputs = depset(
            archives + [script],
            transitive = [toolchain.all_files],
        ),
        outputs = [output],
        mnemonic = "CppMergeArchives",
        progress_message = "Merging archives into %s" % output.short_path,
    )
    return [DefaultInfo(files = depset([output]))]

# Makes libNAME.a.
static_archive = rule(
    implementation = _static_archive_impl,
    attrs = {
        "alwayslink": attr.bool(
            doc = "Takes the libraries that programs must link as a whole, " +
                  "because they register themselves. Otherwise, takes the " +
                  "other ones.",
        ),
        "deps": attr.label_list(
            doc = "Libraries; the archive holds what they depend on, too.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "repositories": attr.string_list(
            doc = "External repositories that no Debian package has.",
        ),
        "without": attr.label_list(
            doc = "Libraries that are in another archive, with what they " +
                  "depend on.",
            providers = [CcInfo],
        ),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
