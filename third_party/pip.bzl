# SPDX-License-Identifier: Apache-2.0
"""Repositories out of wheels, which pip pins by hash and unpacks. Python itself
does not come along: nothing is imported.
"""

load(":build_file.bzl", "write_build_file")

# The versions of glibc for which wheels are, and older names of them.
_PLATFORMS = [
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_25",
    "manylinux_2_18",
    "manylinux_2_17",
    "manylinux_2_12",
    "manylinux_2_5",
    "manylinux2014",
    "manylinux2010",
    "manylinux1",
]

# The wheels are chosen by these and not by the Python that runs pip.
_PIP_FLAGS = [
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--abi=cp311",
    "--abi=none",
    "--no-cache-dir",
    "--no-compile",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
    "--quiet",
]

def install_wheels(rctx, requirements, what, machine = "x86_64"):
    """Unpacks wheels into the repository.

    Args:
      rctx: of the repository rule.
      requirements: paths of files in pip's format, with hashes.
      what: what this is and who needs it, for messages.
      machine: for which the wheels are.
    """

    # Debian's, whatever else is first in the path.
    python = "/usr/bin/python3"
    if rctx.execute([python, "-m", "pip", "--version"]).return_code != 0:
        fail("%s: fetched with pip, and %s has none: install the " %
             (what, python) + "package python3-pip, or run tools/setup")
    rctx.report_progress("pip downloads " + what)
    command = [python, "-m", "pip", "install", "--target", "."] + _PIP_FLAGS
    for platform in _PLATFORMS:
        command.append("--platform=%s_%s" % (platform, machine))
    for file in requirements:
        command += ["--requirement", str(file)]
    done = rctx.execute(command, timeout = 3600)
    if done.return_code != 0:
        fail(("%s: pip could not install it; it needs a package index. " +
              "pip said:\n%s%s") % (what, done.stdout, done.stderr))

def _pip_files_impl(rctx):
    install_wheels(rctx, [rctx.path(rctx.attr.requirements)], rctx.attr.what)
    write_build_file(rctx)

pip_files = repository_rule(
    implementation = _pip_files_impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "requirements": attr.label(allow_single_file = True, mandatory = True),
        "what": attr.string(mandatory = True),
    },
)
