# SPDX-License-Identifier: Apache-2.0
"""A repository for LibTorch, out of the wheels of PyTorch.

The wheels hold the headers and libraries of LibTorch and of CUDA; no other
form of LibTorch has a package manager that pins it by hash. Python itself does
not come along: pip unpacks, and nothing is imported.
"""

load("//third_party:build_file.bzl", "write_build_file")
load("//third_party:pip.bzl", "install_wheels")

# Not for linking against, and large, or harmful: the wheel's protobuf would
# hide the one that gRPC was built with.
_UNWANTED = [
    "bin",
    "functorch",
    "torchgen",
    "torch/bin",
    "torch/include/google/protobuf",
    "torch/lib/libtorch_python.so",
]

# With CUDA's own libraries these are wanted after all.
_UNWANTED_WITHOUT_CUDA = ["nvidia/nccl/lib"]

def _libtorch_impl(rctx):
    cuda = rctx.os.environ.get("TESSERA_CUDA", "") not in ["", "0"]
    requirements = [rctx.path(rctx.attr.requirements)]
    unwanted = list(_UNWANTED)
    size = "0.8"
    if cuda:
        requirements.append(rctx.path(rctx.attr.cuda_requirements))
        size = "2.5"
    else:
        unwanted += _UNWANTED_WITHOUT_CUDA

    install_wheels(
        rctx,
        requirements,
        "LibTorch, %s GB, for fsdp/ and its tests" % size,
        machine = rctx.attr.machine,
    )
    rctx.report_progress("tidying up")
    for path in unwanted:
        rctx.delete(path)

    for stub in rctx.attr.stand_ins:
        rctx.symlink(stub, "stand_ins/" + stub.name.split("/")[-1])
    write_build_file(rctx, {"%{root}": str(rctx.path("."))})

libtorch = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "cuda_requirements": attr.label(
            allow_single_file = True,
            doc = "Installed too when TESSERA_CUDA is set.",
            mandatory = True,
        ),
        "machine": attr.string(
            doc = "For which the libraries are.",
            mandatory = True,
        ),
        "requirements": attr.label(allow_single_file = True, mandatory = True),
        "stand_ins": attr.label_list(
            allow_files = True,
            doc = "Headers in place of those of libraries that are not there.",
        ),
    },
    environ = ["TESSERA_CUDA"],
)
