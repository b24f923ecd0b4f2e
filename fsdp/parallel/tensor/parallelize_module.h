// SPDX-License-Identifier: Apache-2.0
// parallelize_module: tensor and sequence parallelism for an unmodified model,
// by a plan with names and styles, as PyTorch's
// torch.distributed.tensor.parallel.parallelize_module. For the thread that
// trains; collective over the mesh.
#ifndef FSDP_PARALLEL_TENSOR_PARALLELIZE_MODULE_H_
#define FSDP_PARALLEL_TENSOR_PARALLELIZE_MODULE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/tensor/styles.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

// Module names and their styles, in the order in which they are applied. A name
// is split at the dots. Each token is matched with the child names at one
// level, where `*`, `?` and `[..]` work as in fnmatch, and `{a,b}` is either.
// "" is the module itself. load_plan.h reads a plan from a file.
using ParallelizePlan = std::vector<std::pair<std::string, ParallelStyle>>;

struct ParallelizeOptions {
  // The mesh rank with the parameter values that count; without it, each rank
  // cuts its own, which must be equal, and nothing is communicated.
  std::optional<int64_t> src_data_rank = 0;
};

// For the modules that `plan` names: cuts the parameters over `mesh`, which has
// one axis, in place, and makes the operators that take them work as the styles
// say. Everything that the model computes from the results may lie in parts on
// the ranks, see activation.h; the model's code needs no change.
//
// The order is: parallelize_module, activation checkpointing, fully_shard on
// the other axes of the same mesh, the optimizer.
//
// A name that matches no module, and an empty plan, are warnings. Throws
// c10::ValueError for a mesh with several axes, for a parameter that is sharded
// already, or that two styles cut differently; c10::NotImplementedError for a
// style that the module's type does not have. Nothing has changed then.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh,
                        const ParallelizePlan& plan,
                        const ParallelizeOptions& options = {});

template <typename Impl>
void parallelize_module(const torch::nn::ModuleHolder<Impl>& module,
                        const DeviceMesh& mesh, const ParallelizePlan& plan,
                        const ParallelizeOptions& options = {}) {
  parallelize_module(*module.ptr(), mesh, plan, options);
}

}  // namespace fsdp

#endif  // FSDP_PARALLEL_TENSOR_PARALLELIZE_MODULE_H_
