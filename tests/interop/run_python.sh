#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test script: run_python.sh PROGRAM SCRIPT [VERSION], where PROGRAM is
# what it tests. TESSERA_PYTHON must name a Python with PyTorch; with a VERSION,
# the environment python-torch-VERSION next to python-torch-2.11 is used. A test
# that cannot ask its judge has failed.

set -euo pipefail

python=${TESSERA_PYTHON-}
[[ -z ${3-} ]] || python=${python/python-torch-2.11/python-torch-$3}
if [[ ! -x $python ]]; then
  echo "TESSERA_PYTHON leads to no Python with PyTorch: '$python'." >&2
  echo "tools/test makes one and passes it by --test_env." >&2
  exit 1
fi
export TESSERA_PROGRAM=$PWD/$1
export OMP_NUM_THREADS=1
exec "$python" -B "$2"
