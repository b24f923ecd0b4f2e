// SPDX-License-Identifier: Apache-2.0
// The parallelisms of a config in addition to that of data: whether prepare can
// do what the degrees ask for, and cutting layers and experts. For prepare; on
// the thread that trains.
#ifndef FSDP_PREPARE_PARALLELIZE_H_
#define FSDP_PREPARE_PARALLELIZE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "config/model/train_config.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/prepare/prepare_options.h"
#include "torch/nn/module.h"

namespace fsdp {

// Changes nothing. Not for a program that brings its own mesh, whose degrees
// are not those of the config.
absl::Status CheckParallelisms(const torch::nn::Module& module,
                               const MeshConfig& config,
                               const PrepareOptions& options);

// Cuts the layers of `module` over the axis tp, and its experts over ep, where
// these have several ranks. Values are those of `src_data_rank`; see
// parallelize_module. Collective.
absl::Status Parallelize(torch::nn::Module& module, const MeshConfig& config,
                         const PrepareOptions& options,
                         const ParallelDims& dims,
                         std::optional<int64_t> src_data_rank);

}  // namespace fsdp

#endif  // FSDP_PREPARE_PARALLELIZE_H_
