// SPDX-License-Identifier: Apache-2.0
// Parallelisms of train_llama in addition to data parallelism: which ranks
// share what, and the plan by which tensor parallelism cuts this Llama;
// stages.h has its pipelines. For the thread that trains.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/parallel/tensor/parallelize_module.h"

namespace llama {

// Returns InvalidArgument, with what to write instead, for options that
// contradict each other, whatever the number of ranks.
absl::Status CheckParallel(const Config& config);

// The degrees of a job of `world_size` ranks, `local_world_size` of them on
// this machine. Returns InvalidArgument if the options do not multiply to that.
absl::StatusOr<fsdp::ParallelDegrees> DegreesOf(const Config& config,
                                                int64_t world_size,
                                                int64_t local_world_size);

// To be called after FitBatch: fills `microbatches` if no flag did. Returns
// InvalidArgument if the sequences of a rank cannot be divided into them.
absl::Status FitMicrobatches(int64_t num_readers, Config* config);

// The plan that is built in, for the modules that `model` has. Without sequence
// parallelism each of two all-reduces a block gives every rank the whole
// activation; with it they become a reduce-scatter and an all-gather, between
// which each rank has its part of the sequence. Logits stay cut by class, so
// the loss is parallel too.
fsdp::ParallelizePlan BuiltInPlan(const LlamaImpl& model,
                                  bool sequence_parallel);

// That of --plan or of the file of --config, or else the one that is built in,
// without the modules that other stages of a pipeline have. Throws
// c10::ValueError with every problem of the file.
fsdp::ParallelizePlan PlanOf(const Config& config, LlamaImpl& model);

// Cuts layers over the ranks of --tp by that plan, and divides experts among
// those of --ep.
void CutLayers(const Config& config, const fsdp::ParallelDims& dims,
               LlamaImpl& model);

// A line about heads that the ranks cannot divide, which costs communication;
// empty if they can.
std::string WarningOf(const Config& config);

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_
