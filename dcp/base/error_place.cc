// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_place.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace dcp {
namespace {

struct Field {
  absl::string_view payload_type;
  std::string ErrorPlace::*text;
};

constexpr Field kFields[] = {
    {"tessera/error-path", &ErrorPlace::path},
    {"tessera/error-file", &ErrorPlace::file},
    {"tessera/error-tensor", &ErrorPlace::tensor},
    {"tessera/error-offset", &ErrorPlace::offset},
};

}  // namespace

absl::Status WithPlace(absl::Status status, const ErrorPlace& place) {
  if (status.ok()) return status;
  for (const Field& field : kFields) {
    const std::string& text = place.*field.text;
    if (text.empty() || status.GetPayload(field.payload_type).has_value()) {
      continue;
    }
    status.SetPayload(field.payload_type, absl::Cord(text));
  }
  return status;
}

ErrorPlace StatusPlace(const absl::Status& status) {
  ErrorPlace place;
  for (const Field& field : kFields) {
    const absl::optional<absl::Cord> text =
        status.GetPayload(field.payload_type);
    if (text.has_value()) place.*field.text = std::string(*text);
  }
  return place;
}

}  // namespace dcp
