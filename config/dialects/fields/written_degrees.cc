// SPDX-License-Identifier: Apache-2.0
// Computes degrees as numbers and reports those that a program cannot have.
//
// Tested by tests/config/written_mesh_test.cc.
#include "config/dialects/fields/written_degrees.h"

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"

namespace fsdp::config {
namespace {

constexpr absl::string_view kShardName = "mesh.data_parallel_shard_degree";
constexpr absl::string_view kReplicateName =
    "mesh.data_parallel_replicate_degree";

// The ranks that `others` and the degrees inside leave of num_processes;
// nothing if the number is not known, or not a multiple.
std::optional<int64_t> RemainingRanks(const MeshConfig& mesh, int64_t others) {
  int64_t rest = *mesh.num_processes;
  for (const int64_t degree :
       {*mesh.pipeline_parallel_degree, *mesh.tensor_parallel_degree,
        *mesh.context_parallel_degree, others}) {
    if (rest <= 0 || degree <= 0 || rest % degree != 0) return std::nullopt;
    rest /= degree;
  }
  return rest;
}

// The number for a degree that is the rest of the ranks; 1 after a problem.
int64_t NumberForRest(absl::string_view program, std::optional<int64_t> rest,
                      const Setting<int64_t>& degree, absl::string_view name,
                      Findings& findings) {
  const SourceLocation place = SettingPlace(degree, name);
  if (rest.has_value()) {
    findings.Changed(place, absl::StrCat("is written as ", *rest,
                                         ", because a number is required"));
    return *rest;
  }
  findings.Problem(
      place, absl::StrCat("is the rest of the ranks, but ", program,
                          " requires a number here; give the number of ranks "
                          "with --world-size, or as num_processes"));
  return 1;
}

}  // namespace

int64_t WrittenCopies(absl::string_view program, const MeshConfig& mesh,
                      Findings& findings) {
  const Setting<int64_t>& replicate = mesh.data_parallel_replicate_degree;
  if (*replicate != kReplicateOverRest) return *replicate;
  const int64_t shard = *mesh.data_parallel_shard_degree;
  // Only one of the two can be the rest.
  if (shard == kShardOverRest) return 1;
  return NumberForRest(program, RemainingRanks(mesh, shard), replicate,
                       kReplicateName, findings);
}

WrittenDegrees WrittenSizes(absl::string_view program, const MeshConfig& mesh,
                            Findings& findings) {
  WrittenDegrees degrees;
  RefuseShardsWithinNode(program, mesh, findings);
  const Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  if (*shard == kShardWithinNode) return degrees;
  degrees.tp_size = *mesh.tensor_parallel_degree;
  degrees.cp_size = *mesh.context_parallel_degree;
  degrees.cp_method = WrittenContextMethod(program, mesh, findings);
  degrees.dp_replicate_size = WrittenCopies(program, mesh, findings);
  if (*shard != kShardOverRest) {
    degrees.dp_shard_size = *shard;
  } else if (!degrees.is_plain()) {
    degrees.dp_shard_size =
        NumberForRest(program, RemainingRanks(mesh, degrees.dp_replicate_size),
                      shard, kShardName, findings);
  }
  const bool is_refused = degrees.dp_shard_size == 1 &&
                          degrees.dp_replicate_size > 1 && degrees.cp_size > 1;
  if (is_refused) {
    findings.Problem(
        SettingPlace(shard, kShardName),
        absl::StrCat("is 1, but ", program,
                     " refuses copies with context parallelism without it"));
  }
  return degrees;
}

std::optional<std::string> WrittenContextMethod(absl::string_view program,
                                                const MeshConfig& mesh,
                                                Findings& findings) {
  const Setting<std::string>& method = mesh.context_parallel_method;
  if (*mesh.context_parallel_degree == 1 || *method == "allgather") {
    return std::nullopt;
  }
  if (*method == "alltoall") return *method;
  findings.Changed(
      SettingPlace(method, "mesh.context_parallel_method"),
      absl::StrCat("is written as allgather: ", program, " has no ", *method));
  return std::nullopt;
}

bool IsWithoutShards(const MeshConfig& mesh) {
  return *mesh.data_parallel_shard_degree == 1 &&
         *mesh.context_parallel_degree == 1;
}

void RefuseCutCopies(absl::string_view program, const MeshConfig& mesh,
                     Findings& findings) {
  const Setting<int64_t>& tensor = mesh.tensor_parallel_degree;
  if (*tensor == 1 || *mesh.data_parallel_replicate_degree == 1) return;
  findings.Problem(
      SettingPlace(tensor, "mesh.tensor_parallel_degree"),
      absl::StrCat("is ", *tensor, ", but ", program,
                   " refuses tensor parallelism with copies and no shards"));
}

void RefuseDegree(absl::string_view program, const Setting<int64_t>& degree,
                  absl::string_view name, Findings& findings) {
  if (*degree == 1) return;
  findings.Problem(
      SettingPlace(degree, name),
      absl::StrCat("is ", *degree, ", but ", program,
                   " has no option for it, and would use these ranks for "
                   "something else"));
}

void RefuseShardsWithinNode(absl::string_view program, const MeshConfig& mesh,
                            Findings& findings) {
  const Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  if (*shard != kShardWithinNode) return;
  findings.Problem(
      SettingPlace(shard, kShardName),
      absl::StrCat("is the ranks of one machine, which ", program,
                   " cannot express; give the number of ranks with "
                   "--world-size, and those of a machine with "
                   "--local-world-size"));
}

}  // namespace fsdp::config
