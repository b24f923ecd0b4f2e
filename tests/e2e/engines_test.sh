#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dcp-convert under the launchers that people have: a Slurm of four nodes on
# this machine (srun, and an array), Open MPI, torchrun. Each time one worker is
# killed, workers are started again, in another number, and the result is, byte
# for byte, equal to one worker's.
#
# Requires root, Debian's slurm-wlm, munge and openmpi-bin, and TESSERA_PYTHON
# with PyTorch; tools/setup installs them.

set -uo pipefail
# Debian's daemons are there.
export PATH=$PATH:/usr/sbin

# convert TOOL FOLDER DST ARGUMENTS...: the command that all workers run.
convert() {
  local tool=$1 folder=$2 dst=$3
  shift 3
  "$tool" convert "$folder/model.safetensors" "$dst" --to dcp --mesh shard=6 \
    --piece-size 1MB --max-memory 16MiB --progress none "$@"
}

# worker TOOL FOLDER DST VICTIM: the launchers start this. The worker VICTIM is
# killed the first time that it runs.
if [[ $1 == worker ]]; then
  rank=${SLURM_ARRAY_TASK_ID:-${OMPI_COMM_WORLD_RANK:-${RANK:-$SLURM_PROCID}}}
  if [[ $rank == "$5" ]] && mkdir "$4.killed" 2>/dev/null; then
    export -f convert
    timeout -s KILL 0.05 bash -c 'convert "$@"' convert "$2" "$3" "$4" --workers
    exit 137
  fi
  convert "$2" "$3" "$4" --workers
  exit
fi

readonly kTool=$PWD/$1
readonly kPython=${TESSERA_PYTHON:?the Python with PyTorch}
# Bazel's folders have longer names than a socket may have.
work=$(mktemp -d /tmp/engines.XXXXXX)
readonly work
pids=()
num_failed=0

# shellcheck disable=SC2317  # the trap calls it
end() {
  local pid
  for pid in "${pids[@]}" $(cat "$work/munge/pid" 2>/dev/null); do
    kill "$pid" 2>/dev/null
  done
  wait
  rm -rf "$work"
}
trap end EXIT

fail() {
  echo "FAILED: $*"
  num_failed=$((num_failed + 1))
}

# same DST: is equal to the result of one worker.
same() {
  diff -r "$work/alone" "$work/$1" || fail "$1 differs"
  [[ -d $work/$1.killed ]] || fail "$1: no worker was killed"
}

start_slurm() {
  mkdir -p "$work"/{munge,spool,state,log}
  chmod 711 "$work" "$work/munge"
  head -c 128 /dev/urandom >"$work/munge/key"
  chmod 600 "$work/munge/key"
  munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/pid" --log-file="$work/log/munged" \
    --seed-file="$work/munge/seed" --num-threads=2 || return 1
  local host
  host=$(hostname)
  cat >"$work/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/state/slurmctld.pid
SlurmdPidFile=$work/spool/%n.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
InactiveLimit=0
KillWait=2
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17004] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D -i >/dev/null 2>"$work/log/slurmctld.err" </dev/null &
  pids+=($!)
  local i
  for i in 1 2 3 4; do
    mkdir -p "$work/spool/n$i"
    slurmd -D -N "n$i" >/dev/null 2>"$work/log/n$i.err" </dev/null &
    pids+=($!)
  done
  # srun itself waits for the nodes.
  srun -N4 -n4 --immediate=60 true
}

"$kPython" - "$work/model.safetensors" <<'PYTHON' || exit 1
import sys, torch
from safetensors.torch import save_file
torch.manual_seed(1)
save_file({f"layer{i}.weight": torch.randn(500 + i, 500) for i in range(24)},
          sys.argv[1])
PYTHON
convert "$kTool" "$work" "$work/alone" --share 0/1 >/dev/null || fail "one worker"
worker=(bash "$(readlink -f "$0")" worker "$(readlink -f "$kTool")" "$work")

if start_slurm; then
  # One of four tasks dies, and a step of three ends the work.
  srun -N4 -n4 --kill-on-bad-exit=0 "${worker[@]}" "$work/srun" 2 >/dev/null 2>&1
  srun -N3 -n3 "${worker[@]}" "$work/srun" 2 >/dev/null || fail "srun again"
  same srun
  array() {
    sbatch --wait --array=1-3 --output=/dev/null --export=ALL \
      --wrap "${worker[*]} $work/array 2" >/dev/null 2>&1
  }
  array
  array || fail "array again"
  same array
else
  fail "Slurm did not start"
  cat "$work"/log/*
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe -np 5 "${worker[@]}" "$work/mpirun" 1 >/dev/null 2>&1
mpirun --oversubscribe -np 3 "${worker[@]}" "$work/mpirun" 1 >/dev/null ||
  fail "mpirun again"
same mpirun

"$kPython" -m torch.distributed.run --no-python --nproc-per-node 3 \
  --max-restarts 2 "${worker[@]}" "$work/torchrun" 1 >"$work/log.torchrun" 2>&1 ||
  { fail "torchrun"; cat "$work/log.torchrun"; }
same torchrun

[[ $num_failed == 0 ]] && echo "all launchers: the same bytes"
exit $((num_failed > 0))
