// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include "config/dialects/torchtitan/keys.h"

namespace fsdp::config {

void PassOver(Section& section, std::initializer_list<absl::string_view> keys) {
  for (absl::string_view key : keys) section.Find(key);
}

void IgnoreWhenOn(Section& section, absl::string_view key,
                  absl::string_view reason) {
  Setting<bool> value = false;
  if (section.Read(key, value) && *value) section.Ignore(key, reason);
}

absl::string_view Spelling(Section& section,
                           const std::vector<absl::string_view>& names) {
  section.Find(names);
  for (const absl::string_view name : names) {
    if (section.node().Find(name) != nullptr) return name;
  }
  return names[0];
}

}  // namespace fsdp::config
