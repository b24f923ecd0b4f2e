// SPDX-License-Identifier: Apache-2.0
// MapOptions: between which sides a mapping is applied, and to what.
#ifndef DCP_MAPPING_APPLICATION_MAP_OPTIONS_H_
#define DCP_MAPPING_APPLICATION_MAP_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "dcp/mapping/language/model_sizes.h"

namespace dcp {

struct MapOptions {
  // Which tensors are converted; the others are among the dropped.
  enum class Parts : uint8_t { kAll, kModel, kStates };
  // What happens to a source that no rule and no `drop` of its side names.
  enum class Unmatched : uint8_t {
    kError,
    kKeep,  // it becomes a destination of the same name
    kDrop,
  };

  std::string from;  // sides of the mapping
  std::string to;
  // The text of the model's config.json; empty: none.
  std::string config = {};
  MappingSettings settings = {};
  Parts parts = Parts::kAll;
  Unmatched unmatched = Unmatched::kError;
  // Globs of names of the source that rules require and that may be missing.
  // The tensors that would be made of them are then missing, too.
  std::vector<std::string> allow_missing = {};
  // Maps a model that config.json says is of another type than the mapping.
  bool force_family = false;
};

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_MAP_OPTIONS_H_
