// SPDX-License-Identifier: Apache-2.0
// How train_llama runs a batch: by the whole model, or in microbatches through
// the stages of a pipeline. A stage has some of the blocks, the first one also
// the embedding, the last one the last norm and the output. For the thread that
// trains.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_STAGES_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_STAGES_H_

#include <functional>

#include "ATen/core/Tensor.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/data.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/mesh/parallel_dims.h"

namespace llama {

// With --pp: removes what other stages run from a whole model. To be called
// before anything else is done with it.
void KeepStage(const Config& config, const fsdp::ParallelDims& dims,
               Llama& model);

// Runs forward and backward, and returns the loss of the batch, divided by
// --accumulate. Only the last stage of a pipeline knows it: the others return
// 0, and the last one as many times the loss as there are stages, so that the
// average over all ranks is the loss.
using BatchRunner = std::function<at::Tensor(const Batch& batch)>;

// For a model that is sharded. `config` must outlive the result, which the
// ranks of a pipeline call together.
BatchRunner MakeBatchRunner(const Config& config,
                            const fsdp::ParallelDims& dims, Llama model);

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_STAGES_H_
