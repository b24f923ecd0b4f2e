# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# The daemon at work. Sourced by tools/demo, which sets dir.

# The server is a child: it ends with this script, even if the script fails.
server_pid=
stop_server_at_exit() {
  [[ -z $server_pid ]] || kill -KILL "$server_pid" 2>/dev/null
}

start_server() {
  local port
  port=$(random_port)
  cat <<COMMAND
\$ ./dcp-server --root=\$PWD/served --state-dir=\$PWD/state \\
    --listen=127.0.0.1:$port 2>server.log &
COMMAND
  (
    cd "$dir"
    exec ./dcp-server --root="$dir/served" --state-dir="$dir/state" \
      --listen="127.0.0.1:$port" 2>server.log
  ) &
  server_pid=$!
  trap stop_server_at_exit EXIT
  until grep -q event=start "$dir/server.log" 2>/dev/null; do
    kill -0 "$server_pid" 2>/dev/null || {
      cat "$dir/server.log" >&2
      fail "dcp-server does not start"
    }
    sleep 0.05
  done
  export TESSERA_SERVER=127.0.0.1:$port
  echo "\$ export TESSERA_SERVER=$TESSERA_SERVER"
}

# The server drains first.
stop_server() {
  local code=0
  echo "\$ kill -TERM $server_pid; wait $server_pid; echo \$?"
  kill -TERM "$server_pid"
  wait "$server_pid" || code=$?
  server_pid=
  echo "$code"
  echo '$ tail -n 3 server.log'
  tail -n 3 "$dir/server.log"
  [[ $code -eq 0 ]] || fail "dcp-server ended with exit code $code"
}

show_server() {
  prepare
  build dcp-server server:dcp-server
  local served=$dir/served
  mkdir "$served"
  cp -f "$model" "$served/model.safetensors"

  heading "1. Start the daemon"
  start_server
  show inspect "$served/model.safetensors" --tensors '*layer.0.attention.out*'

  heading "2. Reshard the model for 2 replicas of 3 shards, as a job there"
  show reshard "$served/model.safetensors" "$served/sharded-2x3" \
    --mesh replicate=2,shard=3 --progress plain
  show verify "$served/sharded-2x3"

  heading "3. Consolidate that to one .pt"
  show consolidate "$served/sharded-2x3" "$served/model.pt" --progress plain

  heading "What has it done, and is the end equal to the beginning?"
  show jobs list
  show diff "$served/model.safetensors" "$served/model.pt"

  build_trainer

  heading "4. Train a Llama on 4 processes, 2 copies of 2 halves"
  write_corpus
  write_config
  # A multiple of all process counts.
  local start=$served/run/step-20
  train 4 --replicate=2 --batch=12 --steps=20 --checkpoint-dir="$served/run"
  show inspect "$start" --tensors 'model.layers.0.*'

  heading "5. Go on from its weights with 3 processes, out of the daemon"
  train 3 --batch=12 --steps=20 --checkpoint-dir=run-3 \
    --init-from="tessera://$TESSERA_SERVER$start" --losses-out=losses-daemon

  heading "6. The same with 1 process, out of the files"
  train 1 --batch=12 --steps=20 --checkpoint-dir=run-1 \
    --init-from="$start" --losses-out=losses-files

  heading "Are the losses equal?"
  compare_losses "3, FROM THE DAEMON" losses-daemon \
    "1, FROM THE FILES" losses-files

  heading "7. Stop the daemon"
  stop_server

  heading "What to look at"
  cat <<LOOK
The files are in $dir:
  cd $dir
  less server.log                         a line for each event
  ls -l served served/sharded-2x3         what it wrote
  ./dcp-server --help
  ./dcp-server --root=\$PWD/served --state-dir=\$PWD/state
                                          it still knows its jobs:
  ./dcp-convert jobs list --server 127.0.0.1:7420
LOOK
}
