// SPDX-License-Identifier: Apache-2.0
// The text that train_llama --help prints before the options. For flags.cc.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_HOW_TO_TRAIN_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_HOW_TO_TRAIN_H_

namespace llama {

inline constexpr char kHowToTrain[] =
    R"(Trains a small Llama on the bytes of a text, sharded over all ranks.

One process:
  train_llama --data=book.txt
Four, started by PyTorch's launcher, or by hand:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt
  for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
      train_llama --data=book.txt &
  done; wait
The losses are equal to those of one process: each step has the same batch, and
each rank takes a slice of it.

Ranks may share layers and sequences too, or have different blocks, with the
same losses; --replicate and --shard then divide the other ranks. Here each
layer is on 2 ranks, by the built-in plan, or by your own, which --plan reads:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt --tp=2 --sp
  cat >plan.yaml <<'PLAN'
  embed_tokens: embedding_rowwise
  layers.*.self_attn.[qkv]_proj: colwise
  layers.*.self_attn.o_proj: rowwise
  layers.*.mlp.{gate,up}_proj: colwise
  layers.*.mlp.down_proj: rowwise
  lm_head: colwise
  PLAN
Here 2 of 4 ranks have half of the blocks and share each layer, and the other 2
have the other half; a batch passes them in 4 pieces:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt --tp=2 \
    --pp=2 --microbatches=4
A mixture of 8 experts in place of each feed-forward layer; each of 4 ranks has
2 of them:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt \
    --experts=8 --top-k=2 --ep=4

The config of another program says how to shard, and flags override it:
  train_llama --data=book.txt --config=accelerate.yaml --replicate=2

What to try:
  --replicate=2                  HSDP: two copies, each over half of the ranks
  --reshard-after-forward=false  keep parameters until backward: ZeRO-2
  --param-dtype=bfloat16         compute in bfloat16, reduce in float32
  --checkpoint-activations       less memory, a third more arithmetic
  --deterministic-init           no rank ever holds the whole model
  --tp=2                         a layer on 2 ranks: weights that fit on none
  --tp=2 --sp                    and their activations, which is faster too
  --cp=2 --seq-len=512           a sequence on 2 ranks: it may be longer
  --pp=2                         half of the blocks on each of 2 ranks
  --pp=2 --microbatches=8        in smaller pieces, with less time idle
  --pp=2 --pp-schedule=zbv       two stages on each rank, with still less
  --ema=0.999                    an average of the weights, which is exported
  --experts=8 --ep=2             half of the experts on each of 2 ranks

A run with a folder can be killed. It continues from its newest step, with the
same losses, on any number of processes, whatever they share:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt \
    --steps=1000 --checkpoint-dir=run --save-every=100 --keep-last=2
  kill -9 ...                            or SIGTERM, which saves first
  torchrun --no-python --nproc-per-node=2 train_llama --data=book.txt \
    --steps=1000 --checkpoint-dir=run --save-every=100 --keep-last=2 \
    --export=model.safetensors
The folder may be in an object store, for which each process needs the
variables of the AWS tools:
  export AWS_ENDPOINT_URL=https://s3.example.com      not for Amazon itself
  export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... AWS_REGION=us-east-1
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt \
    --steps=1000 --checkpoint-dir=s3://bucket/run --save-every=100
Saves are written while training continues. dcp-convert and PyTorch read the
steps and the export; another run can begin with it:
  train_llama --data=other.txt --init-from=model.safetensors
It can also begin with a step on a dcp-server. Each rank then gets its own
shards, whichever mesh saved the step (TESSERA_TOKEN is the token, if any):
  train_llama --data=other.txt --init-from=tessera://host:7420/srv/run/step-900
)";

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_HOW_TO_TRAIN_H_
