// SPDX-License-Identifier: Apache-2.0
// OptionsLayout: where an FSDP1 file keeps the sharding options, and the map
// that contains them, so that both can be edited. For to_fsdp2. Any thread.
#ifndef CONFIG_TO_FSDP2_OPTIONS_LAYOUT_H_
#define CONFIG_TO_FSDP2_OPTIONS_LAYOUT_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/model/train_config.h"
#include "config/to_fsdp2/map_edit.h"

namespace fsdp::config {

struct OptionsLayout {
  std::vector<absl::string_view> path;  // from the root to the options
  size_t begin = 0;                     // where their key begins
  std::optional<MapEdit> options;       // without a value: there are none
  std::optional<MapEdit> parent;        // holds the path's last key
  std::optional<size_t> parent_entry;   // the options; unset: not there yet
};

// Whether the dialect's files have FSDP1 options that can be converted.
bool HasFsdp1Options(ConfigDialect dialect);

// Returns nothing if the layout cannot be edited. `text` must outlive the
// result.
std::optional<OptionsLayout> FindOptions(absl::string_view text,
                                         ConfigDialect dialect);

// Whether a value is missing, null or an empty map.
bool IsEmptyText(absl::string_view value);

}  // namespace fsdp::config

#endif  // CONFIG_TO_FSDP2_OPTIONS_LAYOUT_H_
