// SPDX-License-Identifier: Apache-2.0
// Reads any text as a tensor parallelism plan in each syntax. A plan that is
// read finds the modules for its patterns, and places their parameters on an
// axis that the tensors have.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/parallel_plan.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/convert/planned_tensor.h"
#include "dcp/tensor/axis_cuts.h"
#include "dcp/tensor/parallel_plan.h"

namespace dcp {
namespace {

// Enough to meet every kind of pattern; a plan may stand for 10,000.
constexpr size_t kMaxNames = 64;

void CheckName(const ParallelPlan& plan, const std::string& module) {
  const absl::StatusOr<PlannedTensor> planned =
      FindPlanned(plan, absl::StrCat(module, ".weight"), 2);
  // Two entries may disagree about a module.
  if (!planned.ok()) return;
  const bool is_plain =
      module.find_first_of("*?[\\") == std::string::npos && !module.empty();
  DCP_CHECK(!is_plain || planned->entry != nullptr, module);
  DCP_CHECK(planned->placement.dim < 2);
}

void CheckPlan(const ParallelPlan& plan) {
  DCP_CHECK(plan.entries().size() <= kMaxPlanEntries);
  size_t num_names = 0;
  for (const ParallelPlan::Entry& entry : plan.entries()) {
    const absl::StatusOr<std::vector<std::string>> modules =
        ExpandBraces(entry.pattern);
    DCP_CHECK(modules.ok(), modules.status().message());
    for (const std::string& module : *modules) {
      if (++num_names > kMaxNames) return;
      CheckName(plan, module);
    }
  }
}

void CheckCuts(absl::string_view text) {
  const absl::StatusOr<std::vector<AxisCut>> cuts = ParseAxisCuts(text);
  if (!cuts.ok()) return;
  const Mesh mesh{{{.name = "dp", .size = 2}, {.name = "tp", .size = 3}}};
  const absl::StatusOr<Placements> placements = PlacementsForCuts(mesh, *cuts);
  DCP_CHECK(!placements.ok() || placements->size() == 2);
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const absl::string_view name : {"plan.yaml", "plan.json", "plan.toml"}) {
    const absl::StatusOr<dcp::ParallelPlan> plan =
        fsdp::parallel_plan_text(name, text);
    if (plan.ok()) dcp::CheckPlan(*plan);
  }
  dcp::CheckCuts(text);
  return 0;
}
