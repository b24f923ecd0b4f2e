# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases in one run of `bazel test`, from the build events.

Usage: count_cases.py EVENTS_FILE EXIT_CODE. Prints "PASSED FAILED". A test
target that did not build or did not end counts as one failed case, and so does
any other target that did not build, and a run that Bazel aborted.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def read_events(path):
    try:
        with open(path, encoding="utf8") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, ValueError):
        return  # Missing targets are found below.


def count_attempt(result):
    """(passed, failed) of one attempt at one shard of a test."""
    ok = result.get("status") in ("PASSED", "FLAKY")
    for output in result.get("testActionOutput", []):
        if output.get("name") != "test.xml":
            continue
        path = urllib.parse.unquote(
            urllib.parse.urlparse(output.get("uri", "")).path
        )
        try:
            root = xml.etree.ElementTree.parse(path)
        except (OSError, xml.etree.ElementTree.ParseError):
            break
        cases = list(root.iter("testcase"))
        failed = sum(
            1
            for case in cases
            if case.find("failure") is not None
            or case.find("error") is not None
        )
        # A test that fails outside a case, by a crash or by a leak at the end,
        # counts as failed too.
        if not ok:
            failed = max(failed, 1)
        if cases:
            return max(len(cases) - failed, 0), failed
    return (1, 0) if ok else (0, 1)


def count(events):
    """(passed, failed) for a whole run, and whether it ended."""
    expected = set()
    results = {}
    ended = False
    for event in events:
        ident = event.get("id", {})
        if "targetCompleted" in ident:
            # A test that the tags leave out is built but has no result.
            if not event.get("completed", {}).get("success", False) or any(
                "testResult" in child for child in event.get("children", [])
            ):
                expected.add(ident["targetCompleted"]["label"])
        elif "testResult" in ident and "testResult" in event:
            key = ident["testResult"]
            # The last attempt counts.
            results[(key["label"], key.get("run"), key.get("shard"))] = (
                count_attempt(event["testResult"])
            )
        elif "buildFinished" in ident:
            ended = True
    passed = sum(p for p, _ in results.values())
    failed = sum(f for _, f in results.values())
    ran = {label for label, _, _ in results}
    return passed, failed + len(expected - ran), ended


def main():
    passed, failed, ended = count(read_events(sys.argv[1]))
    # A run that failed as a whole counts as failed even if no event says where.
    if failed == 0 and (not ended or sys.argv[2] != "0"):
        failed = 1
    print(passed, failed)


if __name__ == "__main__":
    main()
