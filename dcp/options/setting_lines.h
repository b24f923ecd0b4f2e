// SPDX-License-Identifier: Apache-2.0
// SplitSettingLines: a text of "key = value" lines, as dcp-server and
// train_llama read options from a file. Keys and values are not interpreted.
// Pure; any thread.
#ifndef DCP_OPTIONS_SETTING_LINES_H_
#define DCP_OPTIONS_SETTING_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

struct SettingLine {
  int number = 0;  // from 1
  // Without the spaces around them. A value may contain further equals signs.
  std::string key;
  std::string value;
  bool has_value = false;  // whether the line has an equals sign
};

// Where a '#' begins a comment: only at a line's beginning, so that values may
// contain it, or anywhere.
enum class CommentStyle : uint8_t { kWholeLines, kAnywhere };

// Lines that have only space and comments are left out.
std::vector<SettingLine> SplitSettingLines(absl::string_view text,
                                           CommentStyle comments);

}  // namespace dcp

#endif  // DCP_OPTIONS_SETTING_LINES_H_
