// What the writers of the dialects share: the text of scalars, which is the
// same in YAML, JSON and TOML, and the place of a finding about a setting that
// a dialect has no words for. Pure; any thread.
#ifndef FSDP_CONFIG_WRITING_H_
#define FSDP_CONFIG_WRITING_H_

#include <string>

#include "absl/strings/string_view.h"
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

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_WRITING_H_
