// Tested by tests/config/dialects/transformers/read_test.cc.
#include "config/dialects/fields/optimizer_name.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fsdp::config {
namespace {

// In lower case; from torch, transformers, Composer, LLM Foundry and axolotl.
constexpr absl::string_view kAdamW[] = {
    "adamw",
    "adamw_apex_fused",
    "adamw_hf",
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_npu_fused",
    "adamw_torch_xla",
    "decoupled_adamw",
    "decoupledadamw",
    "torch.optim.adamw",
};

// Whether it is the same rule with its state in other types or another memory.
bool IsOtherState(absl::string_view name) {
  return absl::StrContains(name, "adamw") &&
         (absl::StrContains(name, "bit") || absl::StrContains(name, "paged") ||
          absl::StrContains(name, "anyprecision"));
}

}  // namespace

void ReadOptimizerName(absl::string_view key, Section& section) {
  Setting<std::string> name;
  if (!section.Read(key, name) || name->empty()) return;
  const std::string lower = absl::AsciiStrToLower(*name);
  if (std::find(std::begin(kAdamW), std::end(kAdamW), lower) !=
      std::end(kAdamW)) {
    return;
  }
  if (IsOtherState(lower)) {
    section.findings().Changed(
        *name.place(),
        "is read as AdamW: the same rule, with its state in the type of the "
        "parameters");
    return;
  }
  section.findings().Problem(
      *name.place(),
      absl::StrCat("is ", *name,
                   ", but the optimizer here is AdamW, which would train "
                   "something else with the same numbers; write adamw, with a "
                   "learning rate and a weight decay for it"));
}

}  // namespace fsdp::config
