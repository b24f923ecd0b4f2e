// SPDX-License-Identifier: Apache-2.0
// train_llama's parallelisms in addition to data parallelism: which ranks share
// layers or sequences, and the plan by which tensor parallelism cuts this
// Llama; stages.h has the pipelines. For the thread that trains.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"
#include "fsdp/parallel/tensor/parallelize_module.h"

namespace llama {

// Returns InvalidArgument, which says what to write instead, for options that
// contradict each other for any rank count.
absl::Status CheckParallel(const Config& config);

// The degrees for a job with `world_size` ranks, `local_world_size` of them on
// this machine. Returns InvalidArgument if the options do not multiply to that.
absl::StatusOr<fsdp::ParallelDegrees> ChooseDegrees(const Config& config,
                                                    int64_t world_size,
                                                    int64_t local_world_size);

// The schedule of --pp-schedule, and the number of stages on each rank.
fsdp::ScheduleKind PipelineScheduleKind(const Config& config);
int64_t StagesPerRank(const Config& config);

// Call it after FitBatch: fills `microbatches` if no flag did. Returns
// InvalidArgument if a rank's sequences cannot be divided into them, or the
// schedule does not allow the number.
absl::Status FitMicrobatches(int64_t num_readers, Config* config);

// The built-in plan, for the modules that `model` has. Without sequence
// parallelism, two all-reduces in a block each give every rank the whole
// activation. With it they become a reduce-scatter and an all-gather, and
// between them each rank has its part of the sequence. Logits stay cut by
// class, so the loss is parallel too.
fsdp::ParallelizePlan BuiltInPlan(const LlamaImpl& model,
                                  bool sequence_parallel);

// The plan from --plan or from the --config file, or else the built-in one,
// without the modules on other pipeline stages. Throws c10::ValueError with
// every problem in the file.
fsdp::ParallelizePlan ChoosePlan(const Config& config, LlamaImpl& model);

// Cuts layers over the --tp ranks by that plan, and divides experts among the
// --ep ranks.
void CutLayers(const Config& config, const fsdp::ParallelDims& dims,
               LlamaImpl& model);

// A line about heads that the ranks cannot divide, which costs communication;
// empty if they can.
std::string HeadsWarning(const Config& config);

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_PARALLEL_H_
