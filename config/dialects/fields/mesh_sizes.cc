// SPDX-License-Identifier: Apache-2.0
// Reads the sizes and repeats accelerate's checks of them.
//
// Tested by tests/config/dialects/fields/mesh_sizes_test.cc.
#include "config/dialects/fields/mesh_sizes.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/fsdp_options.h"
#include "config/dialects/fields/keys.h"

namespace fsdp::config {
namespace {

bool HasSizes(const MeshConfig& mesh) {
  return *mesh.data_parallel_replicate_degree > 1 ||
         *mesh.data_parallel_shard_degree > 1 ||
         *mesh.tensor_parallel_degree > 1 || *mesh.context_parallel_degree > 1;
}

void SettleSizes(const SourceLocation& place, bool are_copies,
                 MeshConfig& mesh) {
  Setting<int64_t>& replicate = mesh.data_parallel_replicate_degree;
  Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  if (HasSizes(mesh)) {
    if (*shard == kShardOverRest) shard = Setting<int64_t>(1, place);
    if (*replicate == kReplicateOverRest) {
      replicate = Setting<int64_t>(1, place);
    }
  } else if (are_copies) {
    replicate = Setting<int64_t>(kReplicateOverRest, place);
  } else if (*shard == 1) {
    shard = Setting<int64_t>(kShardOverRest, place);
  }
}

}  // namespace

bool ReadParallelismOptions(Section& section, MeshConfig& mesh) {
  const auto key = [&section](absl::string_view option) {
    return KeyWithPrefix("parallelism_config_", option, section);
  };
  constexpr IntegerRange kDegree{.least = 1};
  const bool are_copies = AreCopies(mesh);
  bool has_any = false;
  for (const auto& [option, degree] :
       {std::pair("dp_replicate_size", &mesh.data_parallel_replicate_degree),
        std::pair("dp_shard_size", &mesh.data_parallel_shard_degree),
        std::pair("tp_size", &mesh.tensor_parallel_degree),
        std::pair("cp_size", &mesh.context_parallel_degree)}) {
    has_any = section.Read(key(option), kDegree, *degree) || has_any;
  }
  ReadContextMethod(section, key("cp_comm_strategy"),
                    mesh.context_parallel_method);
  section.Refuse(key("sp_size"), "1",
                 "there is no sequence parallelism of DeepSpeed's kind; write "
                 "cp_size, with which ranks share sequences too");
  section.Refuse(key("ep_size"), "1",
                 "neither accelerate nor transformers reads it here; experts "
                 "are divided by distributed_config.ep_size");
  for (const absl::string_view unused :
       {"cp_backend", "sp_backend", "sp_seq_length",
        "sp_seq_length_is_variable", "sp_attn_implementation"}) {
    section.Find(key(unused));
  }
  if (has_any) SettleSizes(section.node().place, are_copies, mesh);
  return HasSizes(mesh);
}

void CheckMeshSizes(bool is_fsdp, const TrainConfig& config,
                    Findings& findings) {
  const MeshConfig& mesh = config.mesh;
  const Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& context = mesh.context_parallel_degree;
  const SourceLocation place = SettingPlace(shard, "dp_shard_size");
  if (is_fsdp && *config.sharding.fsdp_version == 1) {
    findings.Problem(SettingPlace(config.sharding.fsdp_version, "fsdp_version"),
                     "is 1, which has no mesh sizes; write 2");
  } else if (is_fsdp && *shard == 1 && *context == 1) {
    findings.Problem(place,
                     "makes dp_shard_size 1, so FSDP has no ranks to shard "
                     "over; write dp_shard_size, or train without FSDP");
  }
  if (!is_fsdp && *context > 1) {
    findings.Problem(SettingPlace(context, "cp_size"),
                     absl::StrCat("is ", *context,
                                  ", but ranks share sequences only with FSDP, "
                                  "which is off"));
  } else if (*mesh.data_parallel_replicate_degree > 1 && *shard == 1 &&
             (*context > 1 || *mesh.tensor_parallel_degree > 1)) {
    findings.Problem(place,
                     "makes dp_shard_size 1, and copies are not combined with "
                     "tp_size or cp_size without shards");
  }
}

}  // namespace fsdp::config
