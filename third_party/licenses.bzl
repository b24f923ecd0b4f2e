# SPDX-License-Identifier: Apache-2.0
"""A repository with the licences of Debian's packages that are linked in."""

def _debian_licenses_impl(rctx):
    texts = []
    for package in rctx.attr.packages:
        path = "/usr/share/doc/%s/copyright" % package
        if not rctx.path(path).exists:
            fail("%s is missing: install the package %s, or run tools/setup" %
                 (path, package))
        texts.append("==== %s\n\n%s" % (package, rctx.read(path)))
    rctx.file("licenses.txt", "\n".join(texts), executable = False)
    rctx.file(
        "BUILD.bazel",
        'exports_files(["licenses.txt"])\n',
        executable = False,
    )

debian_licenses = repository_rule(
    implementation = _debian_licenses_impl,
    attrs = {
        "packages": attr.string_list(mandatory = True),
    },
    local = True,
)
