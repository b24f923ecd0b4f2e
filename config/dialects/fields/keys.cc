// SPDX-License-Identifier: Apache-2.0
// Reads keys that dialects spell alike.
//
// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include "config/dialects/fields/keys.h"

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

void ReadDegree(Section& section, absl::string_view key, int64_t least,
                Setting<int64_t>& degree) {
  Setting<int64_t> value;
  if (!section.Read(key, {.least = least}, value)) return;
  if (*value == 0) {
    section.findings().Problem(*value.place(),
                               "is 0, not -1 or a number of ranks");
    return;
  }
  degree = value;
}

void ReadContextMethod(Section& section, absl::string_view key,
                       Setting<std::string>& method) {
  const Choices<std::string> kMethods = {{"allgather", "allgather"},
                                         {"alltoall", "alltoall"}};
  section.Read(key, kMethods, method);
}

}  // namespace fsdp::config
