// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/cast_losses.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {}  // namespace

std::vector<CastLoss> CastLosses(const Conversion& conversion) {
  std::vector<CastLoss> losses;
  absl::flat_hash_map<const TensorEntry*, size_t> known;
  for (size_t i = 0; i < conversion.num_beyond.size(); ++i) {
    if (conversion.num_beyond[i] == 0) continue;
    const Payload& payload = conversion.output.payloads[i];
    const auto [it, is_new] = known.emplace(payload.stored, losses.size());
    if (is_new) losses.push_back({.name = "", .dtype = payload.dtype});
    losses[it->second].num_beyond += conversion.num_beyond[i];
  }
  for (const CheckpointEntry& entry : conversion.source->entries()) {
    const auto found = known.find(entry.tensor());
    if (found != known.end()) losses[found->second].name = entry.fqn;
  }
  std::sort(
      losses.begin(), losses.end(),
      [](const CastLoss& a, const CastLoss& b) { return a.name < b.name; });
  return losses;
}

absl::Status StrictCastError(absl::Span<const CastLoss> losses) {
  std::vector<std::string> some;
  for (const CastLoss& loss :
       losses.first(std::min(losses.size(), kMaxNamesShown))) {
    some.push_back(absl::StrCat(loss.name, " (", loss.num_beyond, " beyond ",
                                TorchName(loss.dtype), ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a strict cast would change values beyond the range of the "
      "new type: ",
      absl::StrJoin(some, ", "), losses.size() > some.size() ? ", ..." : "",
      "; cast these tensors to a wider type, or leave out the option "
      "strict_cast"));
}

}  // namespace dcp
