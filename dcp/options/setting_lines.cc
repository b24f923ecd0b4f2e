// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/setting_lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace dcp {

std::vector<SettingLine> SplitSettingLines(absl::string_view text,
                                           CommentStyle comments) {
  std::vector<SettingLine> settings;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    const size_t hash = line.find('#');
    if (comments == CommentStyle::kAnywhere || hash == 0) {
      line = absl::StripTrailingAsciiWhitespace(line.substr(0, hash));
    }
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    SettingLine setting;
    setting.number = number;
    setting.key =
        std::string(absl::StripAsciiWhitespace(line.substr(0, equals)));
    setting.has_value = equals != absl::string_view::npos;
    if (setting.has_value) {
      setting.value =
          std::string(absl::StripAsciiWhitespace(line.substr(equals + 1)));
    }
    settings.push_back(setting);
  }
  return settings;
}

}  // namespace dcp
