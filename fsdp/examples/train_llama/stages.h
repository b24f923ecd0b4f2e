// SPDX-License-Identifier: Apache-2.0
// How train_llama runs a batch: by the whole model, or in microbatches through
// pipeline stages. A rank's stages are parts of one model. A stage has some
// blocks; the first stage also has the
// embedding, and the last one the last norm and the output. For the thread that
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

// With --pp: removes the modules that other ranks run from a whole model. Call
// it after FitMicrobatches, before anything else is done with the model.
void KeepStage(const Config& config, const fsdp::ParallelDims& dims,
               Llama& model);

// Runs forward and backward, or, without grad mode, forward alone, and returns
// the batch's loss, divided by --accumulate. In a pipeline only the last
// stage's rank knows it: the others return 0, and that one the loss times the
// number of ranks in the pipeline, so that the average over all ranks is the
// loss.
using BatchRunner = std::function<at::Tensor(const Batch& batch)>;

// For a sharded model. `config` must outlive the result, which all ranks in a
// pipeline call together.
BatchRunner MakeBatchRunner(const Config& config,
                            const fsdp::ParallelDims& dims, Llama model);

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_STAGES_H_
