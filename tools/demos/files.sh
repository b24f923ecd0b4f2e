# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# A model through every format and back, and training. Sourced by tools/demo, which sets dir.

show_files() {
  prepare
  cp -f "$model" "$dir/model.safetensors"

  heading "The published model"
  show inspect model.safetensors --tensors '*layer.0.attention*'

  heading "1. Split it for a mesh of 4 ranks"
  step 1 reshard model.safetensors sharded-4 --mesh shard=4

  heading "2. Reshard that to 2 replicas of 3 shards"
  step 2 reshard sharded-4 sharded-2x3 --mesh replicate=2,shard=3

  heading "3. Consolidate that to one .pt"
  step 3 consolidate sharded-2x3 model.pt

  heading "4. And back to safetensors"
  step 4 convert model.pt again.safetensors

  heading "Is the end equal to the beginning?"
  show diff model.safetensors again.safetensors

  heading "What it cost"
  print_table

  build_trainer

  heading "5. Train a Llama on 4 processes, dp 2 x tp 2, and kill it"
  write_corpus
  write_config
  launch 4 --tp=2
  # A step is complete once its index exists; it is written last.
  kill_once test -e "$dir/run/step-30/.metadata"
  echo '$ ls run'
  ls "$dir/run"
  show inspect run/step-30 --chunks --tensors 'model.layers.0.mlp.up_proj*'

  heading "6. Go on with 4 processes that share no layer: dp 4"
  train 4 --losses-out=losses-killed

  heading "7. Consolidate the last checkpoint: the model alone, in one file"
  show inspect run/step-60 --tensors 'model.layers.0.*'
  show consolidate run/step-60 llama.pt --include 'model.*' \
    --rename 's/^model\.//'
  show verify llama.pt
  show diff run/step-60 llama.pt --include 'model.*' --rename 's/^model\.//'

  heading "8. The same training with 1 process, uninterrupted"
  train 1 --checkpoint-dir=run-1 --losses-out=losses-1

  heading "Are the losses equal?"
  compare_losses "2 X 2, THEN 4" losses-killed "1 PROCESS" losses-1
  expect_falling_losses "$dir/losses-killed"

  heading "What transformers needs"
  tools/setup --interop

  heading "9. The last checkpoint as a folder of Hugging Face"
  load_in_transformers run/step-60

  heading "What to look at"
  cat <<LOOK
The files are in $dir:
  cd $dir
  ls -l . sharded-4 sharded-2x3           a file per rank, and its .metadata
  ./dcp-convert inspect sharded-2x3 --chunks --tensors '*word_embeddings*'
  ./dcp-convert inspect model.pt
  unzip -t model.pt                       the checksums are those of zip
  ./dcp-convert convert sharded-4 small.safetensors --cast bf16 --plan
  ./dcp-convert --help
  ./train_llama --help
  ls -l run run/step-60                   a file per rank, and its .metadata
  ./dcp-convert inspect run/step-60       the model, the optimizer, the run
  ./dcp-convert diff run/step-60 run-1/step-60 --include 'model.*'
                                          different by rounding
  ls -l llama-hf                          what from_pretrained loads
  ./train_llama --options=llama.conf --steps=80
                                          goes on from step 60; with more
                                          processes and --tp or --pp as well
  ./train_llama --options=llama.conf --checkpoint-dir=run-2 --init-from=llama.pt
                                          begins with these weights
LOOK
}
