# SPDX-License-Identifier: Apache-2.0
"""The rules of the project that neither compiler nor linter knows.

A rule is a function from a tree, a dict of path -> text (None for what is not
text), to a list of findings, "path:line: what is wrong". RULES lists them.
tidy_test.py runs each over the project and shows that each can fail.
"""

import os
import re

import english
import length_rules
import markdown_rules
import release_rules
import rooms
from source_tree import (
    CODE,
    OURS,
    PRODUCT,
    code_files,
    grep,
    without_comments_and_strings,
    without_licence,
)

SCRIPTS = (".py", ".sh", ".bzl", ".bazel", ".BUILD", ".bazelrc", "WORKSPACE")

# Words that the rules look for are put together here, so that this file does
# not break them.
LEFTOVERS = ("TO" + "DO", "FIX" + "ME", "X" + "XX")
MACHINE_PATHS = tuple("/" + name + "/" for name in ("work", "root", "home"))
REGISTRIES = ("pypi" + ".org", "pythonhosted" + ".org", "deb.debian" + ".org")


# In which top folders, what, why. An empty tuple means everywhere.
BANNED = (
    ((), r"\b(throw|catch)\b", "exceptions are not used"),
    ((), r"\bstd::string_view\b", "absl::string_view is what Abseil takes"),
    (
        ("dcp",),
        r"\bstd::cout\b|\bv?printf\(|\bputs\(|\bstdout\b",
        "a library does not print to where results go",
    ),
    (
        (),
        r"\b(u?sleep|nanosleep|clock_nanosleep)\s*\(|\bsleep_(for|until)\b"
        r"|\bSleepFor\b",
        "nothing sleeps",
    ),
    ((), r"\busing\s+namespace\b", "no using-directives"),
    (
        (),
        r"\bstd::(format|views)\b|<format>|<ranges>",
        "not in every compiler that must read this",
    ),
    (
        tuple(top for top in PRODUCT if top != "plugins"),
        r"\babsl::Now\(|\bsystem_clock\b"
        r"|\b(Await|Wait|WaitForNotification)With(Timeout|Deadline)\b",
        "SteadyNow and SteadyCondVar do not follow changes of the clock",
    ),
    (
        PRODUCT,
        r"\bstd::(jthread|async|thread)\b(?!::)|\bpthread_create\b",
        "threads are started by dcp::Thread, which can say that there are none",
    ),
    (
        PRODUCT,
        r"\bstd::random_device\b|\babsl::(Insecure)?BitGen\b",
        "randomness is UniqueBits, which ends no process in a sandbox",
    ),
    (
        (),
        r"\b_SC_PAGE_?SIZE\b|\bgetpagesize\b",
        "pages have PageBytes, which is one number for the whole system",
    ),
    (
        ("tests",),
        r"\bGTEST_" + r"SKIP\b|\bDISABLED_",
        "a test that does not run is not one",
    ),
)


# Where a rule of BANNED, known by the first word of its why, does not hold.
ALLOWED = {
    # LibTorch and its backends report errors with exceptions; here those of a
    # collective get the rank, the group and the operation.
    ("fsdp/mesh/collective_errors.cc", "exceptions"),
    # The bridge from exceptions to absl::Status.
    ("fsdp/checkpoint/state/torch_status.cc", "exceptions"),
    # yaml-cpp reports errors in a file with one.
    ("document/yaml_document.cc", "exceptions"),
    # The clients under Arrow throw, and no exception may pass a plugin's C
    # interface.
    ("plugins/arrow/arrow_error.cc", "exceptions"),
    # prometheus-cpp reports a port that is in use with one.
    ("server/process/metrics.cc", "exceptions"),
    # Shows that an exception passes from one thread to another.
    ("tests/third_party/glibc/later_functions.cc", "exceptions"),
    ("dcp/base/thread.cc", "threads"),
    ("dcp/base/page_bytes.h", "pages"),
    # Times that people, journals and other machines read.
    ("dcp/io/posix_lock.cc", "SteadyNow"),
    ("server/jobs/job_finisher.cc", "SteadyNow"),
    ("server/jobs/job_manager.cc", "SteadyNow"),
    ("server/jobs/job_scheduler.cc", "SteadyNow"),
    ("server/main.cc", "SteadyNow"),
    ("server/process/log_writer.cc", "SteadyNow"),
    ("server/process/process_metrics.cc", "SteadyNow"),
    ("server/server.cc", "SteadyNow"),
    ("tools/dcp_convert/commands/clean_command.cc", "SteadyNow"),
    ("tools/dcp_convert/commands/workers_command.cc", "SteadyNow"),
    # Work of a simulated device takes as long as a test wants.
    ("tests/testing/sim_device/delay.cc", "nothing"),
}


def banned_words(tree):
    findings = []
    for path, text in code_files(tree):
        code = without_comments_and_strings(text)
        for tops, pattern, why in BANNED:
            if (path, why.split()[0]) in ALLOWED:
                continue
            if not tops or path.split("/")[0] in tops:
                findings += grep(path, code, pattern, why)
    return findings


# Which folders may include the headers of a library of others; the visibility
# of its target says the same, but the headers are there for every compilation.
# For our own headers, see rooms.py.
INCLUDES = (
    (r"<liburing", ("dcp/io/",)),
    (r"[<\"]aws/", ("dcp/io/s3/",)),
    (r"[<\"]arrow/", ("plugins/arrow/", "tests/plugins/arrow/")),
    (r"<(libdeflate|xxhash)\.h", ("dcp/base/",)),
    (
        r"[<\"]re2/",
        (
            "dcp/checkpoint/",
            "fsdp/prepare/",
            "tests/dcp/checkpoint/",
            "tools/",
            "tests/tools/",
        ),
    ),
    (
        r"[<\"]nlohmann/",
        ("dcp/format/", "config/", "document/", "tools/", "tests/"),
    ),
    (r"[<\"]yaml-cpp/", ("document/yaml_document.cc",)),
    (r"[<\"]toml\+\+/", ("document/toml_document.cc",)),
    (r"[<\"](gtest|gmock|benchmark)/", ("tests/",)),
    (r"[<\"]absl/flags/", ("dcp/", "tools/", "tests/")),
    (
        r"[<\"](grpc|grpcpp)/",
        (
            "proto/",
            "server/",
            "client/",
            "tests/bench/",
            "tests/client/",
            "tests/proto/",
            "tests/server/",
        ),
    ),
    (
        r"[<\"](google|tessera/v1)/",
        (
            "proto/",
            "server/",
            "client/",
            "fsdp/checkpoint/",
            "tools/",
            "tests/bench/",
            "tests/client/",
            "tests/fsdp/checkpoint/",
            "tests/proto/",
            "tests/server/",
            "tests/tools/",
        ),
    ),
    (
        r"[<\"]openssl/",
        (
            "server/access/access.cc",
            "server/transport/guarded_connections.cc",
            "server/access/page_token.cc",
            "server/transport/tls_files.cc",
            "tests/server/transport/raw_connection.cc",
            "tests/testing/certificates.cc",
        ),
    ),
    (r"[<\"]sqlite3", ("server/", "tests/server/")),
    (r"[<\"]prometheus/", ("server/", "tests/server/")),
    (
        r"[<\"](torch|ATen|c10)/",
        (
            "fsdp/",
            "tests/bench/",
            "tests/chains/",
            "tests/e2e/",
            "tests/fsdp/",
            "tests/testing/",
        ),
    ),
    (
        r"[<\"](c10/cuda|ATen/cuda|cuda|nccl|torch/csrc/.*ProcessGroupNCCL)",
        ("fsdp/mesh/nccl_backend.cc",),
    ),
)


def includes_allowed(tree):
    findings = []
    for path, text in code_files(tree, *OURS):
        for pattern, folders in INCLUDES:
            if not path.startswith(folders):
                findings += grep(
                    path,
                    text,
                    r"^\s*#\s*include\s*" + pattern,
                    "only %s may include this" % ", ".join(folders),
                )
    return findings


def no_leftovers(tree):
    pattern = r"\b(" + "|".join(LEFTOVERS) + r")\b"
    findings = []
    for path, text in tree.items():
        if text is not None and path.endswith(CODE + SCRIPTS):
            findings += grep(path, text, pattern, "something is left to do")
    return findings


def no_machine_paths(tree):
    # A path of one machine begins a word; "framework/" and URLs do not count.
    pattern = (
        r"(?<![\w.\-/:}])("
        + "|".join(MACHINE_PATHS)
        + r")|"
        + "|".join(re.escape(host) for host in REGISTRIES)
    )
    findings = []
    for path, text in tree.items():
        if text is not None:
            findings += grep(
                path, text, pattern, "names a path or a host of one machine"
            )
    return findings


def sources_have_tests(tree):
    """A test of the same path, or a line that names the file that tests it."""
    findings = []
    for path, text in code_files(tree, *PRODUCT):
        if path.endswith(".cc"):
            test = "tests/" + path[: -len(".cc")] + "_test.cc"
            named = re.search(r"^// Tested by (tests/\S+?)\.?$", text, re.M)
            if named:
                test = named.group(1)
            if test not in tree:
                findings.append("%s:1: has no %s" % (path, test))
    return findings


def sources_are_built(tree):
    findings = []
    for path, _ in code_files(tree, *OURS):
        folder, name = os.path.split(path)
        while folder and folder + "/BUILD.bazel" not in tree:
            folder, last = os.path.split(folder)
            name = last + "/" + name
        build = tree.get(folder + "/BUILD.bazel") or ""
        if '"%s"' % name not in build:
            findings.append(
                "%s:1: no target in %s/BUILD.bazel lists it" % (path, folder)
            )
    return findings


def warnings_are_errors_in_ours_alone(tree):
    """What .bazelrc takes back for the folders of others it keeps for ours."""
    rc = tree.get(".bazelrc") or ""
    found = re.search(r"--per_file_copt=(\S+)@-Wno-error", rc)
    if not found:
        return [".bazelrc:1: makes warnings of everybody's targets errors"]
    kept = [
        re.compile(pattern[1:])
        for pattern in found.group(1).split(",")
        if pattern.startswith("-")
    ]

    def is_kept(source):
        return any(pattern.search(source) for pattern in kept)

    findings = []
    for path, _ in code_files(tree):
        top = path.split("/")[0]
        if top in OURS and not (
            is_kept(path) and is_kept("//%s:%s" % os.path.split(path))
        ):
            findings.append(
                "%s:1: .bazelrc does not keep -Werror for %s" % (path, top)
            )
    for source in ("//app:main.cc", "app/main.cc", "//my/tests:main.cc"):
        if is_kept(source):
            findings.append(".bazelrc:1: keeps -Werror for " + source)
    return findings


def headers_open_with_comment(tree):
    return [
        "%s:1: does not open with a comment that says what it is" % path
        for path, text in code_files(tree, *OURS)
        if path.endswith(".h")
        and not without_licence(text).startswith(("// ", "/* "))
    ]


def header_guards(tree):
    findings = []
    for path, text in code_files(tree, *OURS):
        guard = re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
        if (
            path.endswith(".h")
            and "#ifndef %s\n#define %s\n" % (guard, guard) not in text
        ):
            findings.append("%s:1: its guard is not %s" % (path, guard))
    return findings


def limits_have_comments(tree):
    """Constants stand in paragraphs; each paragraph opens with its reason."""
    path = "dcp/base/limits.h"
    findings = []
    commented = False
    previous = ""
    for number, line in enumerate((tree.get(path) or "").split("\n"), 1):
        if not previous.strip():
            commented = line.startswith("//")
        if re.match(r"(inline\s+)?constexpr\b", line) and not commented:
            findings.append(
                "%s:%d: a limit without its reason" % (path, number)
            )
        previous = line
    return findings


def mutations_apply(tree):
    """What tests/fsdp/sim/mutate.py takes out is there, once."""
    path = "tests/fsdp/sim/mutations.py"
    if tree.get(path) is None:
        return []
    module = {"__name__": "mutations"}
    exec(compile(tree[path], path, "exec"), module)
    return [
        "%s: %s has the text of '%s' %d times"
        % (path, mutation.file, mutation.name, count)
        for mutation in module["MUTATIONS"]
        if (count := (tree.get(mutation.file) or "").count(mutation.old)) != 1
    ]


RULES = (
    banned_words,
    *english.RULES,
    *length_rules.RULES,
    header_guards,
    headers_open_with_comment,
    includes_allowed,
    limits_have_comments,
    *markdown_rules.RULES,
    *release_rules.RULES,
    *rooms.RULES,
    mutations_apply,
    no_leftovers,
    no_machine_paths,
    sources_are_built,
    sources_have_tests,
    warnings_are_errors_in_ours_alone,
)
