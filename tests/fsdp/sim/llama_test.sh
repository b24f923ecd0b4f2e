#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs llama_test.py; it needs no package.
set -euo pipefail
export TESSERA_TRAIN_LLAMA=tests/fsdp/sim/train_llama
export PYTHONPATH=tests/fsdp/examples
exec /usr/bin/python3 -B tests/fsdp/sim/llama_test.py
