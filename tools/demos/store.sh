# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Checkpoints in an object store. Sourced by tools/demo, which sets dir.

readonly kBucket=s3://tessera

# The store ends with this script, even if the script fails, because this closes
# the store's standard input.
start_store() {
  # Socket paths must be short.
  local folder
  folder=$(mktemp -d)
  mkfifo "$dir/store.hold"
  tests/testing/radosgw.sh "$folder/store" 2048 \
    <"$dir/store.hold" >"$dir/store.url" &
  exec {hold}>"$dir/store.hold"
  rm "$dir/store.hold"
  until [[ -s $dir/store.url ]]; do
    kill -0 $! 2>/dev/null || fail "the store does not start"
    sleep 0.1
  done
  export AWS_ACCESS_KEY_ID=tessera AWS_SECRET_ACCESS_KEY=tesserasecret
  export AWS_REGION=us-east-1 AWS_REQUEST_CHECKSUM_CALCULATION=when_required
  AWS_ENDPOINT_URL=$(<"$dir/store.url")
  export AWS_ENDPOINT_URL
  cat <<COMMANDS
\$ export AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL AWS_REGION=$AWS_REGION
\$ export AWS_ACCESS_KEY_ID=tessera AWS_SECRET_ACCESS_KEY=tesserasecret
COMMANDS
}

write_worker() {
  cat >"$dir/worker" <<'WORKER'
#!/usr/bin/env bash
# worker COMMAND...: the worker 2 dies when something is done.
[[ $OMPI_COMM_WORLD_RANK == 2 ]] || exec "$@"
"$@" &
until ./dcp-convert workers "$4" | grep -q ': [1-9][0-9]* of'; do
  kill -0 $! || exit 0
done
kill -9 $! && wait $!
WORKER
  chmod +x "$dir/worker"
}

# share NUMBER COMMAND...: under mpirun.
share() {
  local num=$1
  shift
  echo "\$ mpirun -np $num $*"
  (
    cd "$dir"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun --oversubscribe -np "$num" "$@"
  )
}

# Compares the tensors that PyTorch reads at two places.
load_with_torch() {
  echo "\$ python compare.py $*"
  cat >"$dir/compare.py" <<'PYTHON'
import sys
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def load(url):
    stored = FsspecReader(url).read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in stored.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    dcp.load(state, storage_reader=FsspecReader(url), no_dist=True)
    chunks = sum(len(stored[name].chunks) for name in state)
    print(f"{url}: {len(state)} tensors in {chunks} chunks")
    return state


before, after = load(sys.argv[1]), load(sys.argv[2])
different = [name for name in before if not torch.equal(before[name], after[name])]
if before.keys() != after.keys() or different:
    sys.exit(f"demo: different tensors: {different}")
print(f"PyTorch {torch.__version__} finds the same values in all tensors")
PYTHON
  "$kCache/python-torch-2.11/bin/python" "$dir/compare.py" "$@" ||
    fail "PyTorch does not read it"
}

show_store() {
  heading "What is needed"
  tools/setup --interop
  prepare_folder
  build dcp-convert tools/dcp_convert:dcp-convert
  build_trainer

  heading "1. Start an object store"
  start_store

  heading "2. Train a Llama on 4 processes, into the store, and kill it"
  write_corpus
  write_config
  local run=$kBucket/run target=$kBucket/resharded
  launch 4 --checkpoint-dir="$run"
  kill_once "$dir/dcp-convert" inspect "$run/step-30"
  show verify "$run/step-30"

  heading "3. Go on with 4 processes from the newest step in the store"
  train 4 --checkpoint-dir="$run" --losses-out=losses-killed
  expect_falling_losses "$dir/losses-killed"
  show inspect "$run/step-60" --tensors 'model.layers.0.*'

  heading "4. Reshard it with four workers, one of which is killed"
  write_worker
  local reshard=(./dcp-convert reshard "$run/step-60" "$target" --mesh shard=64
    --piece-size 500KB --workers --progress none)
  echo '$ cat worker'
  cat "$dir/worker"
  share 4 ./worker "${reshard[@]}" && fail "no worker died"
  show workers "$target"

  heading "5. Three workers end the work"
  share 3 "${reshard[@]}" || fail "that ended with exit code $?"
  show verify "$target"
  show diff "$run/step-60" "$target"

  heading "6. Load it with PyTorch, out of the store"
  load_with_torch "$run/step-60" "$target"

  heading "What to look at"
  cat <<LOOK
The files are in $dir; the store has ended. docs/object-stores.md and
docs/many-machines.md say how to use your own.
LOOK
}
