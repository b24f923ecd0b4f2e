# SPDX-License-Identifier: Apache-2.0
"""A repository with aws-c-s3 and what it stands on, as archives.

Amazon releases its C libraries together as the source distribution of the
Python package awscrt. pip downloads that one, pinned by hash, and CMake builds
its C part (CMakeLists.txt) against Debian's OpenSSL, once for all modes of
compilation. Nothing of Python is built or used.
"""

load("//third_party:build_file.bzl", "write_build_file")

_WHAT = "aws-c-s3, for //dcp/io/s3"
_PACKAGE = "awscrt-0.38.1"

_BUILD_SECONDS = 3600

def _compiler_flags(rctx):
    if not rctx.attr.aarch64_sysroot:
        return ["-DCMAKE_C_COMPILER=gcc"]
    return [
        "-DCMAKE_AR=/usr/bin/llvm-ar-14",
        "-DCMAKE_C_COMPILER=clang-19",
        "-DCMAKE_C_COMPILER_TARGET=aarch64-linux-gnu",
        "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld",
        "-DCMAKE_LIBRARY_ARCHITECTURE=aarch64-linux-gnu",
        "-DCMAKE_RANLIB=/usr/bin/llvm-ranlib-14",
        "-DCMAKE_SYSROOT=%s" % rctx.path(rctx.attr.aarch64_sysroot).dirname,
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    ]

def _run(rctx, command, doing, missing = ""):
    done = rctx.execute(command, timeout = _BUILD_SECONDS)
    if done.return_code != 0:
        fail("%s: %s failed. %sIt said:\n%s\n%s" %
             (_WHAT, doing, missing, done.stdout[-4000:], done.stderr[-4000:]))

def _require(rctx, path, package):
    if not rctx.path(path).exists:
        fail("%s: %s is missing: install the package %s, or run tools/setup" %
             (_WHAT, path, package))

def _aws_c_s3_impl(rctx):
    for path, package in rctx.attr.required.items():
        _require(rctx, path, package)

    rctx.report_progress("pip downloads " + _WHAT)
    _run(rctx, [
        # Debian's, whatever else is first in the path.
        "/usr/bin/python3",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary=awscrt",
        "--require-hashes",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--quiet",
        "--requirement",
        str(rctx.path(rctx.attr.requirements)),
        "--dest",
        ".",
    ], "the download with pip", "It needs a package index. ")

    # aws-lc is another OpenSSL, and most of the archive.
    _run(rctx, [
        "tar",
        "--extract",
        "--file=%s.tar.gz" % _PACKAGE,
        "--exclude=*/crt/aws-lc",
        _PACKAGE + "/crt",
        _PACKAGE + "/LICENSE",
        _PACKAGE + "/NOTICE",
    ], "unpacking")

    rctx.report_progress("CMake builds " + _WHAT)
    rctx.symlink(rctx.attr.cmake_file, "project/CMakeLists.txt")
    _run(rctx, [
        "cmake",
        "-S",
        "project",
        "-B",
        "build",
        "-DSOURCES=%s" % rctx.path(_PACKAGE + "/crt"),
        "-DCMAKE_BUILD_TYPE=Release",
        # Its messages name source files, by paths of their own.
        "-DCMAKE_C_FLAGS=-ffile-prefix-map=%s=" %
        rctx.path(_PACKAGE + "/crt/"),
        "-DCMAKE_INSTALL_PREFIX=%s" % rctx.path("."),
        "-DCMAKE_INSTALL_LIBDIR=lib",
    ] + _compiler_flags(rctx), "configuration with CMake")
    _run(
        rctx,
        ["bash", "-c", "cmake --build build --parallel $(nproc) --target install"],
        "compilation",
    )
    for leftover in [_PACKAGE, _PACKAGE + ".tar.gz", "build", "project"]:
        rctx.delete(leftover)
    write_build_file(rctx)

aws_c_s3 = repository_rule(
    implementation = _aws_c_s3_impl,
    attrs = {
        "aarch64_sysroot": attr.label(
            doc = "The BUILD file in a folder with Debian's headers and " +
                  "libraries for aarch64, to build for it.",
        ),
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "cmake_file": attr.label(allow_single_file = True, mandatory = True),
        "required": attr.string_dict(
            doc = "Paths that must exist, with the packages that have them.",
        ),
        "requirements": attr.label(allow_single_file = True, mandatory = True),
    },
)
