#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tidy_test.py over the project as it lies in the workspace, not over the
# copy of single files that Bazel shows to a test.

set -euo pipefail
root=$(dirname "$(realpath WORKSPACE)")
exec python3 -B tests/style/tidy_test.py "$root"
