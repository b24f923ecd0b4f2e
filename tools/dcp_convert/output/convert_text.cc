// SPDX-License-Identifier: Apache-2.0
// Puts the lines together that describe a conversion.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include "tools/dcp_convert/output/convert_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/tensor/dtype.h"
#include "tools/dcp_convert/output/map_plan_text.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

constexpr size_t kMaxLossesShown = 8;

}  // namespace

std::string RenderContents(const ConvertPlan& plan) {
  std::string text =
      absl::StrCat(FormatName(plan.from), " to ", FormatName(plan.to), ": ",
                   FormatPlural(plan.num_tensors, "tensor"), ", ",
                   FormatPlural(plan.num_objects, "object"), "\n");
  if (!plan.dropped_metadata.empty()) {
    absl::StrAppend(&text, "metadata left out: ",
                    Printable(absl::StrJoin(plan.dropped_metadata, ", ")),
                    "\n");
  }
  if (!plan.code_left_out.empty()) {
    absl::StrAppend(&text, "not copied, because it is code: ",
                    Printable(absl::StrJoin(plan.code_left_out, ", ")), "\n");
  }
  if (!plan.not_copied.empty()) {
    absl::StrAppend(
        &text, "not copied: ", Printable(FirstNames(plan.not_copied)), "\n");
  }
  if (!plan.dropped_config.empty()) {
    absl::StrAppend(&text, "left out of config.json, because it is not so in ",
                    "the result: ", absl::StrJoin(plan.dropped_config, ", "),
                    "\n");
  }
  if (plan.dropped.empty()) return text;
  absl::StrAppend(&text, "left out: ", FirstNames(plan.dropped), "\n");
  return text;
}

std::string RenderDoubts(const ConvertPlan& plan) {
  std::string text;
  if (!plan.check.checked) {
    text = "the source was not checked\n";
  } else if (plan.check.num_items_unchecked > 0) {
    text =
        absl::StrCat(FormatPlural(plan.check.num_items_unchecked, "item"), " (",
                     FormatBytes(plan.check.bytes_unchecked),
                     plan.check.num_items_unchecked == 1 ? ") was" : ") were",
                     " not checked: the source has neither CRC nor digest\n");
  }
  const size_t shown = std::min(plan.cast_losses.size(), kMaxLossesShown);
  for (size_t i = 0; i < shown; ++i) {
    const CastLoss& loss = plan.cast_losses[i];
    absl::StrAppend(&text, Printable(loss.name), ": ",
                    FormatPlural(loss.num_beyond, "element"),
                    loss.num_beyond == 1 ? " was" : " were",
                    " beyond the range of ", TorchName(loss.dtype), "\n");
  }
  if (shown < plan.cast_losses.size()) {
    absl::StrAppend(&text, "and elements of ",
                    FormatPlural(plan.cast_losses.size() - shown, "tensor"),
                    " more\n");
  }
  return text;
}

}  // namespace dcp::tools
