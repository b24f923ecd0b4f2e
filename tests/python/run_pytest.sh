#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel in FOLDER into a new virtual environment, as a user does, and
# runs the tests there with pytest: run_pytest.sh FOLDER FILE...
#
# PyTorch, pytest and all other packages that the tests import come from
# TESSERA_PYTHON. No compiler is in the path.

set -euo pipefail

if [[ -z ${TESSERA_PYTHON-} || ! -x $TESSERA_PYTHON ]]; then
  echo "TESSERA_PYTHON names no Python with PyTorch: '${TESSERA_PYTHON-}'." >&2
  echo "tools/test makes one and passes it by --test_env." >&2
  exit 1
fi
wheel=$(echo "$PWD/$1"/*.whl)
shift
readonly env=$TEST_TMPDIR/env
"$TESSERA_PYTHON" -m venv "$env"
"$TESSERA_PYTHON" >"$(echo "$env"/lib/python*/site-packages)/judge.pth" \
  -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
"$env/bin/python" -m pip install --quiet --no-index --no-deps \
  --disable-pip-version-check "$wheel"
export TESSERA_WHEEL=$wheel
export PATH=$env/bin OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
exec "$env/bin/python" -X dev -W ignore -m pytest -q -rs \
  -p no:cacheprovider --basetemp="$TEST_TMPDIR/pytest" \
  --junitxml="${XML_OUTPUT_FILE:-$TEST_TMPDIR/junit.xml}" "$@"
