// SPDX-License-Identifier: Apache-2.0
// Puts a mesh and a plan into words.
//
// Tested by tests/tools/fsdp_config/render_test.cc.
#include "tools/fsdp_config/mesh_text.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/terminal/quantity.h"

namespace fsdp::tools {
namespace {

using dcp::tools::FormatPlural;

std::string Ranks(int64_t num_ranks) {
  return FormatPlural(static_cast<uint64_t>(num_ranks), "rank");
}

// "16 ranks: 2 copies x 8 shards".
std::string AxesText(const MeshPlan& mesh) {
  std::vector<std::string> axes;
  const auto add = [&axes](int64_t num_ranks, absl::string_view what) {
    if (num_ranks > 1) axes.push_back(absl::StrCat(num_ranks, " ", what));
  };
  add(mesh.pipeline_parallel, "stages");
  add(mesh.replicate, "copies");
  axes.push_back(mesh.shard > 1          ? absl::StrCat(mesh.shard, " shards")
                 : mesh.num_shards() > 1 ? "1 shard"
                                         : "the whole model on each");
  add(mesh.context_parallel, "parts of each sequence");
  add(mesh.tensor_parallel, "parts of each layer");
  const int64_t world = mesh.pipeline_parallel * mesh.replicate *
                        mesh.num_shards() * mesh.tensor_parallel;
  return absl::StrCat(Ranks(world), ": ", absl::StrJoin(axes, " x "));
}

}  // namespace

std::string MeshText(const MeshConfig& config, const MeshPlan& mesh) {
  std::string text = absl::StrCat("Mesh: ", AxesText(mesh), "\n");
  const int64_t num_shards = mesh.num_shards();
  if (num_shards > 1) {
    absl::StrAppend(&text, "  each parameter is cut over ", Ranks(num_shards),
                    ", which gather it and reduce-scatter its gradient\n");
  }
  if (mesh.replicate > 1) {
    absl::StrAppend(
        &text, "  gradients are all-reduced over the ", mesh.replicate,
        " copies",
        num_shards > 1 ? " (HSDP, DeepSpeed's MiCS)" : " (data parallel)",
        "\n");
  }
  if (mesh.context_parallel > 1) {
    const std::string& method = *config.context_parallel_method;
    const std::string ranks = Ranks(mesh.context_parallel);
    absl::StrAppend(
        &text,
        method == "alltoall"
            ? absl::StrCat("  ring attention: keys and values move round ",
                           ranks)
        : method == "ulysses"
            ? absl::StrCat("  attention of all keys and values with a part of "
                           "the heads on each of ",
                           ranks)
            : absl::StrCat("  attention gathers keys and values over ", ranks),
        "\n");
  }
  if (mesh.pipeline_parallel > 1) {
    absl::StrAppend(&text,
                    "  each stage has a part of the layers, which the program "
                    "chooses\n");
  }
  if (mesh.expert_parallel > 1) {
    absl::StrAppend(&text, "  experts are divided among ",
                    Ranks(mesh.expert_parallel),
                    mesh.expert_tensor_parallel > 1
                        ? absl::StrCat(", and each over ",
                                       Ranks(mesh.expert_tensor_parallel))
                        : "",
                    "\n");
  }
  return text;
}

std::string LayersText(const MeshConfig& mesh) {
  if (*mesh.tensor_parallel_degree == 1) return "";
  const size_t num_entries = mesh.parallelize_plan->entries().size();
  if (num_entries == 0) {
    return "Layers: cut as the program says\n";
  }
  return absl::StrCat("Layers: cut by the plan of the config, ",
                      FormatPlural(num_entries, "pattern"), "\n");
}

}  // namespace fsdp::tools
