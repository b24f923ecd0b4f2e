// SPDX-License-Identifier: Apache-2.0
// Shared by the dialects' writers: the text of scalars, which is the same in
// YAML, JSON and TOML, and the findings about settings that a dialect cannot
// express. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_CONFIG_WRITER_H_
#define CONFIG_DIALECTS_FIELDS_CONFIG_WRITER_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/setting.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// In double quotes, with escapes where they are needed. UTF-8 stays as it is.
std::string QuotedText(absl::string_view text);

// The shortest text that reads back as the same number, with a point (8.0e-05,
// 1.0), because YAML 1.1 reads 8e-05 as a string.
std::string RealText(double value);

inline std::string BoolText(bool value) { return value ? "true" : "false"; }

// The place where a user wrote the setting; if nobody did, the name in
// TrainConfig.
template <typename T>
SourceLocation SettingPlace(const Setting<T>& setting, absl::string_view name) {
  if (setting.place().has_value()) return *setting.place();
  return SourceLocation{.key = std::string(name)};
}

// Why a setting is not written, for options that simply lack it.
inline constexpr absl::string_view kHasNoOption = "has no option for it";

// Adds a changed finding if `setting` differs from `always`: the only value
// that the program has, or the one that a file without the key means. `why`
// continues a sentence that begins with the program's name.
template <typename T>
void SayNotWritten(absl::string_view program, const Setting<T>& setting,
                   const T& always, absl::string_view name,
                   absl::string_view why, Findings& findings) {
  if (*setting == always) return;
  findings.Changed(SettingPlace(setting, name),
                   absl::StrCat("is not written: ", program, " ", why));
}

// Settings that a config leaves unset although the program has a default for
// them, so that the written file says more than the config did.
class ImplicitDefaults {
 public:
  // Records `setting` if it has no value; `value` names the program's own key
  // and value and must outlive this object.
  template <typename T>
  void Add(const Setting<std::optional<T>>& setting, absl::string_view value) {
    if (!setting->has_value()) values_.push_back(value);
  }
  // Adds one changed finding for all of them; none if there are none.
  void Say(absl::string_view program, Findings& findings) const;

 private:
  std::vector<absl::string_view> values_;
};

// Writes one program's files: holds the config, and the place for findings. A
// dialect derives from it and appends to `text_`. The config and the findings
// outlive it.
class ConfigWriter {
 protected:
  ConfigWriter(absl::string_view program, const TrainConfig& config,
               Findings& findings)
      : config_(config), findings_(findings), program_(program) {}

  template <typename T>
  void Changed(const Setting<T>& setting, absl::string_view name,
               std::string text) {
    findings_.Changed(SettingPlace(setting, name), std::move(text));
  }
  // SayNotWritten for this program.
  template <typename T>
  void NotWritten(const Setting<T>& setting, const T& always,
                  absl::string_view name, absl::string_view why) {
    SayNotWritten(program_, setting, always, name, why, findings_);
  }

  const TrainConfig& config_;
  Findings& findings_;
  std::string text_;

 private:
  absl::string_view program_;
};

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_CONFIG_WRITER_H_
