// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_side.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace dcp {
namespace {

constexpr absl::string_view kSideType = "tessera/error-side";

}  // namespace

absl::Status WithSide(absl::Status status, ErrorSide side) {
  if (status.ok() || side == ErrorSide::kNone) return status;
  if (StatusSide(status) != ErrorSide::kNone) return status;
  status.SetPayload(
      kSideType,
      absl::Cord(side == ErrorSide::kSource ? "source" : "destination"));
  return status;
}

ErrorSide StatusSide(const absl::Status& status) {
  const absl::optional<absl::Cord> side = status.GetPayload(kSideType);
  if (!side.has_value()) return ErrorSide::kNone;
  return *side == "source" ? ErrorSide::kSource : ErrorSide::kDestination;
}

}  // namespace dcp
