"""A repository for LibTorch, out of the wheels of PyTorch.

The wheels hold the headers and libraries of LibTorch and of CUDA; no other
form of LibTorch has a package manager that pins it by hash. Python itself does
not come along: pip unpacks, and nothing is imported.
"""

# The wheels are chosen by these and not by the Python that runs pip.
_PIP_FLAGS = [
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--abi=cp311",
    "--abi=none",
] + ["--platform=" + platform for platform in [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_25_x86_64",
    "manylinux_2_18_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux_2_12_x86_64",
    "manylinux_2_5_x86_64",
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
]] + [
    "--no-cache-dir",
    "--no-compile",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
    "--quiet",
]

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

    # Debian's, whatever else is first in the path.
    python = "/usr/bin/python3"
    if rctx.execute([python, "-m", "pip", "--version"]).return_code != 0:
        fail("LibTorch is installed with pip, and %s has none: install the " %
             python + "package python3-pip, or run tools/setup")
    rctx.report_progress("pip downloads %s GB" % size)
    command = [python, "-m", "pip", "install", "--target", "."] + _PIP_FLAGS
    for file in requirements:
        command += ["--requirement", str(file)]
    done = rctx.execute(command, timeout = 3600)
    if done.return_code != 0:
        fail(("pip could not install LibTorch: it needs a package index and " +
              "%s GB to download; only fsdp/, dcp/torch/ and their tests " +
              "need it. pip said:\n%s%s") % (size, done.stdout, done.stderr))
    rctx.report_progress("tidying up")
    for path in unwanted:
        rctx.delete(path)

    for stub in rctx.attr.stand_ins:
        rctx.symlink(stub, "stand_ins/" + stub.name.split("/")[-1])
    rctx.template(
        "BUILD.bazel",
        rctx.attr.build_file,
        {"%{root}": str(rctx.path("."))},
        executable = False,
    )

libtorch = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "build_file": attr.label(allow_single_file = True, mandatory = True),
        "cuda_requirements": attr.label(
            allow_single_file = True,
            doc = "Installed too when TESSERA_CUDA is set.",
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
