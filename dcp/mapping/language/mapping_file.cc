// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

const MappingSide* MappingFile::FindSide(absl::string_view side) const {
  const auto it =
      std::find_if(sides.begin(), sides.end(),
                   [&](const MappingSide& s) { return s.name == side; });
  return it == sides.end() ? nullptr : &*it;
}

const MappingFile::Size* MappingFile::FindSize(absl::string_view size) const {
  const auto it = std::find_if(config.begin(), config.end(),
                               [&](const Size& s) { return s.name == size; });
  return it == config.end() ? nullptr : &*it;
}

}  // namespace dcp
