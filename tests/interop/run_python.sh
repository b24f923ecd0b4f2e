#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test script: run_python.sh PROGRAM SCRIPT, where PROGRAM is what it
# tests. TESSERA_PYTHON must name a Python with PyTorch; a test that cannot ask
# its judge has failed.

set -euo pipefail

if [[ -z ${TESSERA_PYTHON-} || ! -x $TESSERA_PYTHON ]]; then
  echo "TESSERA_PYTHON names no Python with PyTorch: '${TESSERA_PYTHON-}'." >&2
  echo "tools/test makes one and passes it by --test_env." >&2
  exit 1
fi
export TESSERA_PROGRAM=$PWD/$1
export OMP_NUM_THREADS=1
exec "$TESSERA_PYTHON" -B "$2"
