#!/usr/bin/env bash
set -euo pipefail
exec /usr/bin/python3 -B tests/tools/dev/changelog_test.py
