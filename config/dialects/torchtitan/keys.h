// Keys of TorchTitan's sections that are read alike in all of them. For the
// reader of TorchTitan. Any thread.
#ifndef CONFIG_DIALECTS_TORCHTITAN_KEYS_H_
#define CONFIG_DIALECTS_TORCHTITAN_KEYS_H_

#include <initializer_list>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/section.h"

namespace fsdp::config {

// Known keys that do not get a finding: they say how to do something that other
// keys switch on.
void PassOver(Section& section, std::initializer_list<absl::string_view> keys);

// Adds an ignored finding if a switch is on.
void IgnoreWhenOn(Section& section, absl::string_view key,
                  absl::string_view reason);

// The spelling that the file uses, the newest or an older one; both are a
// problem.
absl::string_view Spelling(Section& section,
                           const std::vector<absl::string_view>& names);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_TORCHTITAN_KEYS_H_
