// SPDX-License-Identifier: Apache-2.0
// parallelize_module: tensor and sequence parallelism for an unmodified model,
// by a plan of names and styles, as PyTorch's
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

// Names of modules, and their styles, in the order in which they are applied.
// A name is split at its dots; each token is matched with the names of the
// children of one level, where `*`, `?` and `[..]` are those of fnmatch, and
// `{a,b}` is either. "" is the module itself. load_plan.h reads one from a
// file.
using ParallelizePlan = std::vector<std::pair<std::string, ParallelStyle>>;

struct ParallelizeOptions {
  // The rank of the mesh whose values of the parameters count; without it, each
  // rank cuts its own, which must be equal, and nothing is communicated.
  std::optional<int64_t> src_data_rank = 0;
};

// Cuts the parameters of the modules that `plan` names over `mesh`, which has
// one axis, in place, and has the operators that take them work as their styles
// say. Whatever the model computes from their results may lie in parts on the
// ranks, which activation.h says more about; its code needs no change.
//
// The order is: parallelize_module, activation checkpointing, fully_shard on
// the other axes of the same mesh, the optimizer.
//
// A name that matches no module, and an empty plan, are warnings. Throws
// c10::ValueError for a mesh of several axes, for a parameter that is sharded
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
