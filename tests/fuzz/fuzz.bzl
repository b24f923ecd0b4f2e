# SPDX-License-Identifier: Apache-2.0
"""fuzz_test: one fuzz target, run over its corpus as a test in every mode."""

load("//third_party/precompiled:cc.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_test(name, srcs, corpus = [], deps = [], size = "small", **kwargs):
    """Declares the test `name` and the libFuzzer binary `<name>_fuzzer`.

    The test feeds every file of the corpus, and the empty input, to
    LLVMFuzzerTestOneInput; it is an ordinary test in every mode. The binary
    builds with --config=asan only:

        bazel run --config=asan //tests/fuzz:pickle_fuzz_fuzzer -- \
            -max_total_time=60

    Args:
      name: of the test, `<format>_fuzz`.
      srcs: what defines LLVMFuzzerTestOneInput.
      corpus: files or filegroups; what a crash leaves goes in here.
      deps: of both.
      size: of the test.
      **kwargs: of the test.
    """
    cc_library(
        name = name + "_lib",
        testonly = True,
        srcs = srcs,
        tags = ["manual"],
        visibility = ["//visibility:private"],
        deps = deps,
        # The target function is called by a main that knows only its name.
        alwayslink = True,
    )
    cc_test(
        name = name,
        size = size,
        args = ["$(locations %s)" % label for label in corpus],
        data = corpus,
        deps = [
            name + "_lib",
            "//tests/fuzz:corpus_main",
        ],
        **kwargs
    )
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        # The runfiles are the seeds from which tools/test starts.
        data = corpus,
        linkopts = ["-fsanitize=fuzzer"],
        tags = [
            "fuzzer",
            "manual",
        ],
        deps = [name + "_lib"],
    )
