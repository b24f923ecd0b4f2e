// What the writers of the dialects share: the text of scalars, which is the
// same in YAML, JSON and TOML, and the place of a finding about a setting that
// a dialect cannot express. Pure; any thread.
#ifndef FSDP_CONFIG_DIALECTS_WRITING_H_
#define FSDP_CONFIG_DIALECTS_WRITING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "fsdp/config/document/findings.h"
#include "fsdp/config/document/setting.h"

namespace fsdp::config {

// In double quotes, with escapes where they are needed. UTF-8 stays as it is.
std::string QuotedText(absl::string_view text);

// The shortest text that reads back as the same number, with a point (8.0e-05,
// 1.0), because YAML 1.1 reads 8e-05 as a string.
std::string RealText(double value);

inline std::string BoolText(bool value) { return value ? "true" : "false"; }

// Where a user wrote the setting; if nobody did, its name in TrainConfig.
template <typename T>
Place PlaceOf(const Setting<T>& setting, absl::string_view name) {
  if (setting.place().has_value()) return *setting.place();
  return Place{.key = std::string(name)};
}

// Adds a changed finding if `setting` differs from `always`, the only value
// that the program has.
template <typename T>
void SayNotWritten(absl::string_view program, const Setting<T>& setting,
                   const T& always, absl::string_view name,
                   absl::string_view why, Findings& findings) {
  if (*setting == always) return;
  findings.Changed(PlaceOf(setting, name),
                   absl::StrCat("is not written: ", program, " ", why));
}

// Settings that a config leaves unset although the program has its own default
// for them, so that the written file says more than the config did.
class LeftOpen {
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

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_WRITING_H_
