# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Training, in a demonstration. Sourced by tools/demo, which sets dir.

# The text to train on: the sources of this project.
write_corpus() {
  find README.md CHANGELOG.md CONTRIBUTING.md dcp fsdp tests tools \
    -type f \( -name '*.md' -o -name '*.h' -o -name '*.cc' \) -print0 |
    sort -z | xargs -0 cat >"$dir/corpus.txt"
}

write_config() {
  cat >"$dir/llama.conf" <<'CONFIG'
# train_llama --help explains these.
data = corpus.txt
dim = 128
layers = 4
seq-len = 128
batch = 8
lr = 1e-3
steps = 60
log-every = 10
checkpoint-dir = run
save-every = 10
keep-last = 2
CONFIG
}

# The facts that transformers must know about the model: the options in
# llama.conf, and train_llama's fixed choices.
write_hub_config() {
  cat >"$1" <<'CONFIG'
{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "dtype": "float32",
  "vocab_size": 256,
  "hidden_size": 128,
  "num_hidden_layers": 4,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "intermediate_size": 352,
  "max_position_embeddings": 128,
  "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0,
  "tie_word_embeddings": false
}
CONFIG
}

# show_launch NUMBER FLAGS...: prints launch's command as a user would type it.
show_launch() {
  local num=$1
  shift
  if [[ $num -eq 1 ]]; then
    echo "\$ ./train_llama --options=llama.conf $*"
    return
  fi
  cat <<COMMAND
\$ for rank in $(seq -s ' ' 0 $((num - 1))); do
    RANK=\$rank WORLD_SIZE=$num MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \\
      ./train_llama --options=llama.conf $* &
  done; wait
COMMAND
}

# launch NUMBER FLAGS...: starts NUMBER processes, `ranks`; rank 0 prints.
launch() {
  local num=$1 rank port
  port=$(random_port)
  show_launch "$@"
  shift
  ranks=()
  for ((rank = 0; rank < num; ++rank)); do
    (
      cd "$dir"
      export RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$num
      export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=1
      exec ./train_llama --options=llama.conf "$@"
    ) &
    ranks+=($!)
  done
}

# train NUMBER FLAGS...: trains to the end.
train() {
  local rank
  launch "$@"
  for rank in "${ranks[@]}"; do
    wait -n || {
      kill "${ranks[@]}" 2>/dev/null
      fail "a process ended with an error; what it said is above"
    }
  done
}

# kill_once COMMAND...: waits until the command succeeds, then kill -9 for the
# processes that launch started.
kill_once() {
  until "$@" >/dev/null 2>&1; do
    kill -0 "${ranks[@]}" 2>/dev/null ||
      fail "a process ended with an error; what it said is above"
    sleep 0.05
  done
  echo "\$ kill -9 ${ranks[*]}"
  kill -9 "${ranks[@]}"
  wait "${ranks[@]}" 2>/dev/null || true
}

# compare_losses TITLE FILE TITLE FILE: only rounding may differ, because sums
# over ranks are added in another order, and training enlarges that a little
# with every step.
compare_losses() {
  (cd "$dir" && /usr/bin/python3 - "$@") <<'PYTHON'
import sys
TOLERANCE = 1e-3
title_a, file_a, title_b, file_b = sys.argv[1:]
a, b = ([float(line) for line in open(name)] for name in (file_a, file_b))
row = "{:>6}{:>22}{:>22}{:>14}".format
print(row("STEP", title_a, title_b, "DIFFERENCE"))
for i in sorted({0, *range(4, len(a), 5), len(a) - 1}):
    print(row(i + 1, f"{a[i]:.6f}", f"{b[i]:.6f}", f"{abs(a[i] - b[i]):.1e}"))
largest = max(abs(x - y) for x, y in zip(a, b))
print(f"largest difference of {len(a)} steps: {largest:.1e}, "
      f"allowed {TOLERANCE:.0e}")
if len(a) != len(b) or largest > TOLERANCE:
    sys.exit("demo: the losses differ")
PYTHON
}

expect_falling_losses() {
  /usr/bin/python3 - "$1" <<'PYTHON'
import sys
losses = [float(line) for line in open(sys.argv[1])]
if losses[-1] > 0.7 * losses[0]:
    sys.exit("demo: the loss did not fall")
PYTHON
}

# A step's model, in a folder that transformers loads. train_llama computes one
# loss with these weights, and transformers computes it again.
load_in_transformers() {
  local step=$1
  cp -f fsdp/examples/train_llama.yaml tools/demos/in_transformers.py "$dir"
  write_hub_config "$dir/config.json"
  echo '$ cat train_llama.yaml'
  cat "$dir/train_llama.yaml"
  show convert "$step" llama-hf --to safetensors --drop-non-tensors \
    --map-file train_llama.yaml --from-side train_llama --to-side hf \
    --config config.json
  show diff "$step" llama-hf --tensors-only \
    --map-file train_llama.yaml --from-side train_llama --to-side hf \
    --config config.json
  echo '$ cp config.json llama-hf/'
  cp -f "$dir/config.json" "$dir/llama-hf"
  train 1 --init-from=llama.pt --steps=1 --checkpoint-dir=run-hf \
    --losses-out=losses-hf
  echo '$ python in_transformers.py llama-hf corpus.txt losses-hf --seq-len=128'
  (cd "$dir" && "$kCache/python-torch-2.11/bin/python" -B in_transformers.py \
    llama-hf corpus.txt losses-hf --seq-len=128) ||
    fail "transformers does not compute what train_llama computes"
}

# The program finds LibTorch where the build put it; the first build downloads
# it.
build_trainer() {
  heading "What training needs"
  build train_llama fsdp/examples:train_llama
}
