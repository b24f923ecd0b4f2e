// SPDX-License-Identifier: Apache-2.0
// Decides by names and classes which optimizer a file names.
//
// Tested by tests/config/dialects/transformers/read_test.cc.
#include "config/dialects/fields/optimizer_name.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// In lower case; from torch and the programs whose configs are read.
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

// Whether it is the same rule with state in other types or another memory.
bool IsOtherState(absl::string_view name) {
  return absl::StrContains(name, "adamw") &&
         (absl::StrContains(name, "bit") || absl::StrContains(name, "paged") ||
          absl::StrContains(name, "anyprecision") ||
          absl::StrContains(name, "flash"));
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

void ReadOptimizerClass(absl::string_view key, Section& section,
                        LoopConfig& loop) {
  const Node* path = section.Find(key);
  const absl::string_view name =
      path == nullptr
          ? absl::string_view()
          : absl::string_view(path->text).substr(path->text.rfind('.') + 1);
  if (name != "Adam" && name != "FusedAdam") {
    ReadOptimizerName(key, section);
    return;
  }
  loop.weight_decay = std::optional(0.0);
  const Node* decay = section.Find("weight_decay");
  const bool decays = decay != nullptr && AsReal(*decay) != 0.0;
  Setting<bool> is_adamw = name == "FusedAdam";
  section.Read("adam_w_mode", is_adamw);
  if (decays && !*is_adamw) {
    section.findings().Problem(
        path->place,
        absl::StrCat(
            "is ", path->text,
            " with weight decay, which Adam adds to gradients; the "
            "optimizer here is AdamW; write weight_decay: 0, or AdamW"));
  }
}

}  // namespace fsdp::config
