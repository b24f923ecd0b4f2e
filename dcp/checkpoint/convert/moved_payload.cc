// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/moved_payload.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

bool AddBeyond(const WrittenFile& written, Conversion& conversion) {
  std::vector<uint64_t>& counts = conversion.num_beyond;
  const bool fits = std::all_of(
      written.num_beyond.begin(), written.num_beyond.end(),
      [&](const NumBeyond& beyond) { return beyond.payload < counts.size(); });
  if (!fits) return false;
  for (const NumBeyond& beyond : written.num_beyond) {
    counts[beyond.payload] += beyond.count;
  }
  return true;
}

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

ImageTransferOptions TransferOptions(const ConvertOptions& options,
                                     Conversion& conversion) {
  return {.direct = options.direct,
          .num_lanes = conversion.plan.num_lanes,
          .memory_bytes = conversion.plan.memory_bytes,
          .blocks = conversion.blocks,
          .stop = options.stop,
          .num_beyond = &conversion.num_beyond,
          .strict_cast = options.strict_cast};
}

absl::Status CheckMoved(const absl::Status& moved,
                        const ConvertOptions& options, SourceCheck* check,
                        SourceCheck::Missing missing, TransferStats& stats,
                        Conversion& conversion) {
  conversion.plan.cast_losses = CastLosses(conversion);
  if (options.strict_cast && !conversion.plan.cast_losses.empty()) {
    return StrictCastError(conversion.plan.cast_losses);
  }
  absl::Status checked = moved;
  if (moved.ok() && check != nullptr) {
    checked = check->Finish({.memory_bytes = conversion.plan.memory_bytes,
                             .stop = options.stop,
                             .stats = &stats},
                            missing);
    conversion.plan.check.Add(check->report());
  }
  // If the bytes mix two states of a file, they must not get valid checksums;
  // and if the file contradicts its checksums, the mix is the reason.
  if (checked.ok() || absl::IsDataLoss(checked)) {
    DCP_RETURN_IF_ERROR(conversion.source->CheckUnchanged());
    if (conversion.companions.files != nullptr) {
      DCP_RETURN_IF_ERROR(WithSide(
          conversion.companions.files->CheckUnchanged(), ErrorSide::kSource));
    }
  }
  return checked;
}

absl::Status StrictCastError(absl::Span<const CastLoss> losses) {
  std::vector<std::string> some;
  for (const CastLoss& loss :
       losses.first(std::min(losses.size(), kMaxNamesShown))) {
    some.push_back(absl::StrCat(loss.name, " (", loss.num_beyond, " beyond ",
                                TorchName(loss.dtype), ")"));
  }
  return OptionError(
      absl::StatusCode::kFailedPrecondition,
      "a strict cast would change values beyond the range of the new type: ",
      absl::StrJoin(some, ", "), losses.size() > some.size() ? ", ..." : "",
      "; cast these tensors to a wider type, or leave out ",
      OptionName{"strict_cast"});
}

}  // namespace dcp
