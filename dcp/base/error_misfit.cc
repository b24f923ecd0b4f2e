// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_misfit.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace dcp {
namespace {

constexpr absl::string_view kMisfitType = "tessera/error-misfit";

}  // namespace

absl::Status WithMisfit(absl::Status status) {
  if (!status.ok()) status.SetPayload(kMisfitType, absl::Cord("1"));
  return status;
}

bool IsMisfit(const absl::Status& status) {
  return status.GetPayload(kMisfitType).has_value();
}

}  // namespace dcp
