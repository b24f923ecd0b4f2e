// SPDX-License-Identifier: Apache-2.0
// axolotl computes the rest of a mesh from the number of ranks: the ranks that
// dp_shard_size leaves are copies (HSDP), and without dp_shard_size the rest is
// shards. A size of 1 counts as absent.
//
// Tested by tests/config/dialects/axolotl/mesh_test.cc.
#include "config/dialects/axolotl/mesh.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "dcp/base/bytes.h"

namespace fsdp::config {
namespace {

// The sizes in a file; 1 where it has none.
struct AxolotlSizes {
  Setting<int64_t> shard = 1;
  Setting<int64_t> replicate = 1;
  Setting<int64_t> tensor = 1;
  Setting<int64_t> context = 1;
  Setting<int64_t> expert = 1;
};

AxolotlSizes ReadSizes(Section& root) {
  constexpr IntegerRange kDegree{.least = 1};
  AxolotlSizes sizes;
  root.Read("dp_shard_size", kDegree, sizes.shard);
  root.Read("dp_replicate_size", kDegree, sizes.replicate);
  root.Read("tensor_parallel_size", kDegree, sizes.tensor);
  // The second is the older name.
  for (const absl::string_view key :
       {"context_parallel_size", "sequence_parallel_degree"}) {
    root.Read(key, kDegree, sizes.context);
  }
  root.Find({"context_parallel_size", "sequence_parallel_degree"});
  root.Read("expert_parallel_size", kDegree, sizes.expert);
  return sizes;
}

void RefuseTogether(const Setting<int64_t>& size, absl::string_view name,
                    absl::string_view other, Findings& findings) {
  if (*size == 1) return;
  findings.Problem(
      SettingPlace(size, name),
      absl::StrCat("is ", *size, ", which axolotl refuses ", other));
}

// In axolotl, experts are on a separate axis, next to the shards' axis. Here
// the same ranks have shards of all other weights, which trains the same.
void SetExperts(const AxolotlSizes& sizes, MeshConfig& mesh,
                Findings& findings) {
  constexpr absl::string_view kTogether = "together with expert_parallel_size";
  RefuseTogether(sizes.tensor, "tensor_parallel_size", kTogether, findings);
  RefuseTogether(sizes.replicate, "dp_replicate_size", kTogether, findings);
  const SourceLocation place =
      SettingPlace(sizes.expert, "expert_parallel_size");
  const std::optional<uint64_t> product =
      dcp::CheckedMul(static_cast<uint64_t>(*sizes.expert),
                      static_cast<uint64_t>(*sizes.shard));
  if (!product.has_value() ||
      *product > uint64_t{std::numeric_limits<int64_t>::max()}) {
    findings.Problem(place, absl::StrCat("is ", *sizes.expert,
                                         ", which makes too many ranks"));
    return;
  }
  const auto ranks = static_cast<int64_t>(*product);
  mesh.expert_parallel_degree = sizes.expert;
  mesh.data_parallel_shard_degree = Setting<int64_t>(ranks, place);
  findings.Changed(
      place, absl::StrCat(
                 "is read as experts that are divided among some of ", ranks,
                 " shards, which have parts of the other weights too; axolotl "
                 "keeps those whole on the ranks of expert_parallel_size"));
}

void SetShards(const AxolotlSizes& sizes, MeshConfig& mesh) {
  mesh.data_parallel_replicate_degree = sizes.replicate;
  if (*sizes.shard == 1) return;  // the rest
  mesh.data_parallel_shard_degree = sizes.shard;
  if (*sizes.replicate == 1) {
    mesh.data_parallel_replicate_degree =
        Setting<int64_t>(kReplicateOverRest, SettingPlace(sizes.shard, ""));
  }
}

void SetCopies(const AxolotlSizes& sizes, const SourceLocation& place,
               MeshConfig& mesh, Findings& findings) {
  constexpr absl::string_view kWithoutFsdp = "without fsdp_config";
  RefuseTogether(sizes.shard, "dp_shard_size", kWithoutFsdp, findings);
  const bool is_cut = *sizes.tensor > 1 || *sizes.context > 1;
  if (is_cut) {
    RefuseTogether(sizes.replicate, "dp_replicate_size",
                   "together with tensor_parallel_size and "
                   "context_parallel_size without fsdp_config",
                   findings);
  }
  ReadAsCopies(place, "has no fsdp_config, and is", mesh, findings);
  if (*sizes.replicate > 1) {
    mesh.data_parallel_replicate_degree = sizes.replicate;
  } else if (*sizes.tensor > 1) {
    mesh.data_parallel_replicate_degree = int64_t{1};
  }
  if (*sizes.context > 1) {
    findings.Changed(SettingPlace(sizes.context, "context_parallel_size"),
                     "cuts the weights over these ranks too; axolotl keeps "
                     "them whole, and trains the same");
  }
}

}  // namespace

void ReadAxolotlMesh(Section& root, bool is_fsdp, MeshConfig& mesh) {
  const AxolotlSizes sizes = ReadSizes(root);
  mesh.tensor_parallel_degree = sizes.tensor;
  mesh.context_parallel_degree = sizes.context;
  if (*sizes.expert > 1) {
    SetExperts(sizes, mesh, root.findings());
  } else if (is_fsdp) {
    SetShards(sizes, mesh);
    mesh.requires_shards = true;
  } else {
    SetCopies(sizes, root.node().place, mesh, root.findings());
  }
}

}  // namespace fsdp::config
