// SPDX-License-Identifier: Apache-2.0
// MapOptions: the two sides between which a mapping is applied, and further
// options.
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
  // The fate of a source that neither a rule nor the side's `drop` names.
  enum class Unmatched : uint8_t {
    kError,
    kKeep,  // it becomes a destination with the same name
    kDrop,
  };

  std::string from;  // sides in the mapping
  std::string to;
  // The text of the model's config.json; empty: none.
  std::string config = {};
  MappingSettings settings = {};
  Parts parts = Parts::kAll;
  Unmatched unmatched = Unmatched::kError;
  // Globs for source names that rules require and that may be missing. The
  // tensors made from them are then missing, too.
  std::vector<std::string> allow_missing = {};
  // Maps a model even if config.json gives another model type than the mapping.
  bool force_family = false;
};

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_MAP_OPTIONS_H_
