# SPDX-License-Identifier: Apache-2.0
"""The external libraries of this project, for its workspace and for others.

Everything but LibTorch, aws-c-s3 and Arrow comes from Debian's packages
(tools/setup installs them) and is linked statically. Where a package has no
archive that can be linked, apt-get fetches its sources, and they are compiled.
LibTorch comes from PyTorch's wheels, is linked dynamically, and is downloaded
when the first target that needs it, one of fsdp/, is built. The sources of
aws-c-s3 come from PyPI and are compiled when the first target that needs it is
built. Arrow comes from the wheel of pyarrow for plugins/arrow alone. The
pip_files below come from PyPI, too. Nothing else uses the network.

Apart from WORKSPACE, this file is the only one that names system paths.
"""

load(":debian.bzl", "debian_library")
load(":licenses.bzl", "debian_licenses")
load(":pip.bzl", "pip_files")
load("//third_party/aarch64:sysroot.bzl", "sysroot")
load("//third_party/aws_c_s3:aws_c_s3.bzl", "aws_c_s3")
load("//third_party/debian_sources:debian_sources.bzl", "debian_sources")
load("//third_party/libtorch:libtorch.bzl", "libtorch")

INCLUDE = "/usr/include"

LIB = "/usr/lib/x86_64-linux-gnu"

# Debian's packages that programs and the wheel have linked in.
_LINKED = [
    "libabsl-dev",
    "libc-ares-dev",
    "libcivetweb-dev",
    "libdeflate-dev",
    "libgrpc++-dev",
    "libprotobuf-dev",
    "libre2-dev",
    "libsqlite3-dev",
    "libssl-dev",
    "libstdc++-12-dev",
    "libtomlplusplus-dev",
    "liburing-dev",
    "libxxhash-dev",
    "libyaml-cpp-dev",
    "nlohmann-json3-dev",
    "prometheus-cpp-dev",
    "zlib1g-dev",
]

def tessera_repositories():
    """Declares them; who may use which is the `visibility` in its BUILD file.

    A workspace that has this one as an external repository calls this in its
    WORKSPACE file. Nothing is fetched before a target needs it.
    """
    # Programs are linked with stubs made of these.
    debian_library(
        name = "glibc",
        archives = [LIB + "/" + library for library in [
            "ld-linux-x86-64.so.2",
            "libc.so.6",
            "libc_nonshared.a",
            "libgcc_s.so.1",
            "libm.so.6",
            "libstdc++.so.6",
        ]],
        build_file = Label("//third_party/glibc:glibc.BUILD"),
        headers = [INCLUDE + "/stdlib.h"],
        package = "libc6-dev",
    )

    debian_library(
        name = "abseil",
        archives = [LIB + "/libabsl_*.a"],
        build_file = Label("//third_party/abseil:abseil.BUILD"),
        headers = [INCLUDE + "/absl/status/status.h"],
        merge_into = "libabsl.a",
        package = "libabsl-dev",
    )

    debian_library(
        name = "liburing",
        archives = [LIB + "/liburing.a"],
        build_file = Label("//third_party/liburing:liburing.BUILD"),
        headers = [INCLUDE + "/liburing.h"],
        package = "liburing-dev",
    )

    debian_library(
        name = "libdeflate",
        archives = [LIB + "/libdeflate.a"],
        build_file = Label("//third_party/libdeflate:libdeflate.BUILD"),
        headers = [INCLUDE + "/libdeflate.h"],
        package = "libdeflate-dev",
    )

    debian_library(
        name = "xxhash",
        build_file = Label("//third_party/xxhash:xxhash.BUILD"),
        headers = [INCLUDE + "/xxhash.h"],
        package = "libxxhash-dev",
    )

    debian_library(
        name = "re2",
        archives = [LIB + "/libre2.a"],
        build_file = Label("//third_party/re2:re2.BUILD"),
        headers = [INCLUDE + "/re2/re2.h"],
        package = "libre2-dev",
    )

    debian_library(
        name = "nlohmann_json",
        build_file = Label("//third_party/nlohmann_json:nlohmann_json.BUILD"),
        headers = [INCLUDE + "/nlohmann/json.hpp"],
        package = "nlohmann-json3-dev",
    )

    debian_library(
        name = "yaml_cpp",
        archives = [LIB + "/libyaml-cpp.a"],
        build_file = Label("//third_party/yaml_cpp:yaml_cpp.BUILD"),
        headers = [INCLUDE + "/yaml-cpp/yaml.h"],
        package = "libyaml-cpp-dev",
    )

    # Used as headers only.
    debian_library(
        name = "tomlplusplus",
        build_file = Label("//third_party/tomlplusplus:tomlplusplus.BUILD"),
        headers = [INCLUDE + "/toml++/toml.h"],
        package = "libtomlplusplus-dev",
    )

    debian_library(
        name = "googletest",
        archives = [
            LIB + "/libgmock.a",
            LIB + "/libgtest.a",
            LIB + "/libgtest_main.a",
        ],
        build_file = Label("//third_party/googletest:googletest.BUILD"),
        headers = [
            INCLUDE + "/gtest/gtest.h",
            INCLUDE + "/gmock/gmock.h",
        ],
        package = "libgmock-dev",
    )

    # Debian ships Google Benchmark as a shared library only. It is used by
    # benchmarks and never by the tool.
    debian_library(
        name = "benchmark",
        archives = [LIB + "/libbenchmark.so"],
        build_file = Label("//third_party/benchmark:benchmark.BUILD"),
        headers = [INCLUDE + "/benchmark/benchmark.h"],
        package = "libbenchmark-dev",
    )

    debian_library(
        name = "openssl",
        archives = [
            LIB + "/libssl.a",
            LIB + "/libcrypto.a",
        ],
        build_file = Label("//third_party/openssl:openssl.BUILD"),
        headers = [INCLUDE + "/openssl/ssl.h"],
        package = "libssl-dev",
    )

    # Amazon's client of S3, whose sources come from PyPI.
    for name, aarch64_sysroot in {
        "aws_c_s3": None,
        "aws_c_s3_aarch64": "@debian_aarch64//:BUILD.bazel",
    }.items():
        aws_c_s3(
            name = name,
            aarch64_sysroot = aarch64_sysroot,
            build_file = Label("//third_party/aws_c_s3:aws_c_s3.BUILD"),
            cmake_file = Label("//third_party/aws_c_s3:CMakeLists.txt"),
            required = {
                INCLUDE + "/openssl/ssl.h": "libssl-dev",
                "/usr/bin/cmake": "cmake",
                "/usr/lib/python3/dist-packages/pip": "python3-pip",
            },
            requirements = Label("//third_party/aws_c_s3:requirements.txt"),
        )

    # Apache Arrow's file systems, for the plugin alone.
    pip_files(
        name = "arrow",
        build_file = Label("//third_party/arrow:arrow.BUILD"),
        requirements = Label("//third_party/arrow:requirements.txt"),
        what = "pyarrow, 55 MB, for plugins/arrow",
    )

    # A server of Google's protocol for tests.
    pip_files(
        name = "fake_gcs_server",
        build_file = Label("//third_party/fake_gcs_server:fake_gcs_server.BUILD"),
        requirements = Label("//third_party/fake_gcs_server:requirements.txt"),
        what = "fake-gcs-server, 10 MB, for tests of plugins/arrow",
    )

    # gRPC and all that it depends on, except for what is above.
    debian_library(
        name = "grpc",
        archives = [LIB + "/" + archive for archive in [
            "libgrpc++.a",
            "libgrpc.a",
            "libgpr.a",
            "libaddress_sorting.a",
            "libupb.a",
            "libcares.a",
        ]],
        build_file = Label("//third_party/grpc:grpc.BUILD"),
        headers = [
            INCLUDE + "/grpcpp/grpcpp.h",
            "/usr/bin/grpc_cpp_plugin",
        ],
        package = "libgrpc++-dev protobuf-compiler-grpc",
    )

    debian_library(
        name = "zlib",
        archives = [LIB + "/libz.a"],
        build_file = Label("//third_party/zlib:zlib.BUILD"),
        headers = [INCLUDE + "/zlib.h"],
        package = "zlib1g-dev",
    )

    debian_library(
        name = "protobuf",
        archives = [LIB + "/libprotobuf.a"],
        build_file = Label("//third_party/protobuf:protobuf.BUILD"),
        headers = [
            INCLUDE + "/google/protobuf/message.h",
            "/usr/bin/protoc",
        ],
        package = "libprotobuf-dev protobuf-compiler",
    )

    pip_files(
        name = "googleapis",
        build_file = Label("//third_party/googleapis:googleapis.BUILD"),
        requirements = Label("//third_party/googleapis:requirements.txt"),
        what = "googleapis-common-protos, 0.3 MB, for proto/",
    )

    debian_library(
        name = "sqlite",
        archives = [LIB + "/libsqlite3.a"],
        build_file = Label("//third_party/sqlite:sqlite.BUILD"),
        headers = [INCLUDE + "/sqlite3.h"],
        package = "libsqlite3-dev",
    )

    debian_library(
        name = "prometheus_cpp",
        build_file = Label("//third_party/prometheus_cpp:prometheus_cpp.BUILD"),
        headers = [INCLUDE + "/prometheus/exposer.h"],
        package = "prometheus-cpp-dev",
    )

    # What is compiled of Debian's sources, which the repositories above name.
    debian_sources(
        name = "debian_sources",
        build_file = Label("//third_party/debian_sources:debian_sources.BUILD"),
        packages = [
            "libabsl-dev",
            "libcivetweb-dev",
            "libre2-dev",
            "prometheus-cpp-dev",
        ],
    )

    debian_licenses(
        name = "licenses",
        packages = _LINKED,
    )

    # The same for other machines, with the C library and GoogleTest.
    sysroot(
        name = "debian_aarch64",
        build_file = Label("//third_party/aarch64:sysroot.BUILD"),
        packages = _LINKED + [
            "libc6",
            "libc6-dev",
            "libgcc-12-dev",
            "libgcc-s1",
            "libgloo-dev",
            "libgmock-dev",
            "libgrpc-dev",
            "libgtest-dev",
            "libstdc++6",
            "linux-libc-dev",
        ],
    )

    # For tests of the wheel.
    sysroot(
        name = "python_aarch64",
        build_file = Label("//third_party/aarch64:sysroot.BUILD"),
        packages = [
            "libc6",
            "libexpat1",
            "libffi8",
            "libgcc-s1",
            "libpython3.11-minimal",
            "libpython3.11-stdlib",
            "python3.11-minimal",
            "zlib1g",
        ],
    )

    # With headers of CUDA; libtorch.BUILD says who may use it.
    for name, machine in {
        "libtorch": "x86_64",
        "libtorch_aarch64": "aarch64",
    }.items():
        libtorch(
            name = name,
            machine = machine,
            build_file = Label("//third_party/libtorch:libtorch.BUILD"),
            cuda_requirements = Label("//third_party/libtorch:requirements_cuda.txt"),
            requirements = Label("//third_party/libtorch:requirements.txt"),
            stand_ins = [
                Label("//third_party/libtorch:stand_ins/" + header)
                for header in [
                    "cublasLt.h",
                    "cublas_v2.h",
                    "cusolverDn.h",
                    "cusolver_common.h",
                    "cusparse.h",
                ]
            ],
        )
