// What the writers of the dialects share: the text of scalars, which is the
// same in YAML, JSON and TOML, and the place of a finding about a setting that
// a dialect has no words for. Pure; any thread.
#ifndef FSDP_CONFIG_WRITING_H_
#define FSDP_CONFIG_WRITING_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "fsdp/config/findings.h"
#include "fsdp/config/setting.h"

namespace fsdp::config {

// In double quotes, with what has to be escaped. UTF-8 stays as it is.
std::string QuotedText(absl::string_view text);

// The shortest that reads back as the same number, with a point, for without
// one YAML 1.1 reads 8e-05 as a string: 8.0e-05, 1.0.
std::string RealText(double value);

inline std::string BoolText(bool value) { return value ? "true" : "false"; }

// Where a user wrote the setting; where nobody did, its name in TrainConfig.
template <typename T>
Place PlaceOf(const Setting<T>& setting, absl::string_view name) {
  if (setting.place().has_value()) return *setting.place();
  return Place{.key = std::string(name)};
}

// A changed finding where `setting` is not what a program always does, for it
// has no words for another.
template <typename T>
void SayNotWritten(absl::string_view program, const Setting<T>& setting,
                   const T& always, absl::string_view name,
                   absl::string_view why, Findings& findings) {
  if (*setting == always) return;
  findings.Changed(PlaceOf(setting, name),
                   absl::StrCat("is not written: ", program, " ", why));
}

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_WRITING_H_
