// SPDX-License-Identifier: Apache-2.0
// Expert parallelism: every layer's experts divided among ranks, beneath
// fully_shard. In this order, for each block in a model:
//
//   parallelize_experts(*model, dims);      // cuts experts over ep, etp or tp
//   fully_shard_experts(*block, dims);      // shards those of this rank
//   fully_shard(block, {.mesh = dims.get_mesh("fsdp")});   // and the rest
//
// For the thread that trains; every rank must make the same calls.
#ifndef FSDP_PARALLEL_EXPERTS_EXPERT_PARALLEL_H_
#define FSDP_PARALLEL_EXPERTS_EXPERT_PARALLEL_H_

#include <memory>
#include <optional>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/parallel_dims.h"
#include "torch/nn/module.h"

namespace fsdp {

// Cuts every GroupedExperts inside `model`, as TorchTitan 0.2.2 does with the
// class in parentheses:
//
//   with ep           w1, w2, w3 by expert over ep (ExpertParallel)
//   with ep and etp   also the hidden dimension over etp (ExpertTensorParallel)
//   with tp, not ep   the hidden dimension over tp (TensorParallel)
//
// With ep, and tp without etp, the tp ranks divide each MoE's tokens among
// themselves. Tokens must then be equal on the tp ranks. Values are those on
// `src_data_rank`, see parallelize_parameters. Does nothing without ep and tp.
// Collective. Throws c10::ValueError for a layer in which experts or hidden
// dimension cannot be divided evenly; nothing has changed then.
void parallelize_experts(torch::nn::Module& model, const ParallelDims& dims,
                         std::optional<int64_t> src_data_rank = 0);

// Calls fully_shard on every GroupedExperts inside `module` (or on it) with
// `options`, in which the mesh is replaced: over efsdp, or without ep over
// fsdp, and replicated over dp_replicate, if that has several ranks. Shards
// dimension 1 when there are more shards than experts, unless
// options.shard_placement_fn is set. The gradients of these experts are divided
// by `gradient_divide_factor`, because they are sums over the tokens of more
// ranks than efsdp has. The default is how many ranks the losses are averaged
// over.
std::vector<FSDPModule> fully_shard_experts(
    torch::nn::Module& module, const ParallelDims& dims,
    const FullyShardOptions& options = {},
    std::optional<double> gradient_divide_factor = {});

// Makes each block in `blocks`, listed in forward order, gather the next
// block's groups in forward, and the previous block's groups in backward.
// Expert parallelism requires this, because the host waits for the token counts
// and cannot gather ahead by itself.
void prefetch_blocks(
    const std::vector<std::shared_ptr<torch::nn::Module>>& blocks);

// Call it before an optimizer step. Moves every MoE's expert_bias inside
// `model` by the layer's load_balance_coeff, up for experts that had fewer
// tokens than the average, down for the others, and sets tokens_per_expert to
// zero. So loads even out without an auxiliary loss (arXiv 2408.15664, as
// TorchTitan 0.2.2 does it). One all-reduce for all layers over `loss_mesh`,
// which has one axis; absent: this rank alone. Does nothing without such
// layers.
void update_expert_bias(torch::nn::Module& model,
                        const std::optional<DeviceMesh>& loss_mesh);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_EXPERT_PARALLEL_H_
