# SPDX-License-Identifier: Apache-2.0
"""A repository for a library that a Debian package installed.

The headers stay where the compiler looks anyway. The archives are linked into
the repository, so that they are inputs of every link and a changed package
rebuilds what uses it.
"""

load(":build_file.bzl", "write_build_file")

def _glob(rctx, pattern):
    found = rctx.execute(["bash", "-c", "ls -1 -- " + pattern])
    if found.return_code != 0:
        return []
    return found.stdout.strip().split("\n")

def _debian_library_impl(rctx):
    for header in rctx.attr.headers:
        if not rctx.path(header).exists:
            fail("%s is missing: install the package %s, or run tools/setup" %
                 (header, rctx.attr.package))
    archives = []
    for pattern in rctx.attr.archives:
        found = _glob(rctx, pattern)
        if not found:
            fail("%s is missing: install the package %s, or run tools/setup" %
                 (pattern, rctx.attr.package))
        archives += found
    if rctx.attr.merge_into:
        # One archive, because the linker searches one archive until nothing
        # new is found: the order of its members does not matter, whereas
        # many archives would have to be listed in topological order.
        script = "\n".join(
            ["CREATE " + rctx.attr.merge_into] +
            ["ADDLIB " + a for a in archives] +
            ["SAVE", "END", ""],
        )
        rctx.file("merge.mri", script, executable = False)
        done = rctx.execute(["bash", "-c", "ar -M < merge.mri"])
        if done.return_code != 0:
            fail("ar could not merge the archives of %s: %s" %
                 (rctx.attr.package, done.stderr))
    else:
        for archive in archives:
            rctx.symlink(archive, archive.split("/")[-1])
    write_build_file(rctx)

debian_library = repository_rule(
    implementation = _debian_library_impl,
    attrs = {
        "archives": attr.string_list(
            doc = "Absolute paths or shell patterns of what is linked.",
        ),
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "headers": attr.string_list(
            doc = "Headers whose presence shows that the package is there.",
        ),
        "merge_into": attr.string(
            doc = "If set, the archives become one of this name.",
        ),
        "package": attr.string(mandatory = True),
    },
    local = True,
)
