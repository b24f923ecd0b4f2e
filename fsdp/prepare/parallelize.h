// SPDX-License-Identifier: Apache-2.0
// A config's parallelisms in addition to data parallelism: checks that prepare
// can carry out the degrees, and cuts layers and experts. For prepare; on the
// thread that trains.
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

// Changes nothing. Not for a program that brings a mesh, because then the
// config's degrees do not count.
absl::Status CheckParallelisms(const torch::nn::Module& module,
                               const MeshConfig& config,
                               const PrepareOptions& options);

// Cuts the layers in `module` over the axis tp, and the experts over ep, where
// these have several ranks. Values are those on `src_data_rank`; see
// parallelize_module. Collective.
absl::Status Parallelize(torch::nn::Module& module, const MeshConfig& config,
                         const PrepareOptions& options,
                         const ParallelDims& dims,
                         std::optional<int64_t> src_data_rank);

}  // namespace fsdp

#endif  // FSDP_PREPARE_PARALLELIZE_H_
