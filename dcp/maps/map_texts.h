// SPDX-License-Identifier: Apache-2.0
// The texts of this folder's rule files. The build generates map_texts.cc from
// them. Plain data; any thread.
#ifndef DCP_MAPS_MAP_TEXTS_H_
#define DCP_MAPS_MAP_TEXTS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

struct MapText {
  absl::string_view family;
  absl::string_view text;
};

// Sorted by family.
absl::Span<const MapText> MapTexts();

}  // namespace dcp

#endif  // DCP_MAPS_MAP_TEXTS_H_
