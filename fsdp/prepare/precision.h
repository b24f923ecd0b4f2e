// SPDX-License-Identifier: Apache-2.0
// A config's dtypes as LibTorch's, and fully_shard's options for precision,
// resharding and offload. For prepare; pure.
#ifndef FSDP_PREPARE_PRECISION_H_
#define FSDP_PREPARE_PRECISION_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/ScalarType.h"
#include "config/explain/mesh_plan.h"
#include "config/model/train_config.h"
#include "fsdp/fully_shard.h"

namespace fsdp {

// InvalidArgument, with the place, for a dtype that LibTorch cannot compute
// with. `name` is the setting's.
absl::StatusOr<c10::ScalarType> ToScalarType(const Setting<dcp::DType>& setting,
                                             absl::string_view name);

// All options except mesh, ignored_params and the functions.
absl::StatusOr<FullyShardOptions> ToShardOptions(const TrainConfig& config,
                                                 const MeshPlan& plan,
                                                 bool has_accelerator);

}  // namespace fsdp

#endif  // FSDP_PREPARE_PRECISION_H_
