// SPDX-License-Identifier: Apache-2.0
// Sets the mesh and the types for data parallelism without shards.
//
// Tested by tests/config/dialects/composer/read_test.cc.
#include "config/dialects/fields/copies.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace fsdp::config {

void ReadAsCopies(const SourceLocation& place, absl::string_view subject,
                  MeshConfig& mesh, Findings& findings) {
  mesh.data_parallel_replicate_degree =
      Setting<int64_t>(kReplicateOverRest, place);
  mesh.data_parallel_shard_degree = Setting<int64_t>(1, place);
  findings.Changed(
      place, absl::StrCat(subject,
                          " read as data_parallel_shard_degree: 1: every rank "
                          "has the whole model, and gradients are averaged"));
}

bool AreCopies(const MeshConfig& mesh) {
  return *mesh.data_parallel_replicate_degree == kReplicateOverRest &&
         *mesh.data_parallel_shard_degree == 1;
}

void CastCopies(std::optional<dcp::DType> dtype, const SourceLocation& place,
                PrecisionConfig& precision) {
  if (!dtype.has_value()) return;
  precision.param_dtype = Some(*dtype, place);
  precision.reduce_dtype = Some(dcp::DType::kFloat32, place);
}

}  // namespace fsdp::config
