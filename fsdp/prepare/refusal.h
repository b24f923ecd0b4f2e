// SPDX-License-Identifier: Apache-2.0
// Refusals: errors about a config's value, with the place. For the parts of
// prepare.
#ifndef FSDP_PREPARE_REFUSAL_H_
#define FSDP_PREPARE_REFUSAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/document/setting.h"

namespace fsdp {

// The place where the setting was written; the field's `name` if a program set
// it.
template <typename T>
std::string SettingPlace(const Setting<T>& setting, absl::string_view name) {
  return setting.place().has_value() ? to_string(*setting.place())
                                     : std::string(name);
}

// InvalidArgument: "run.toml:7: parallelism.tensor_parallel_degree is 2, ...".
template <typename T, typename... Parts>
absl::Status Refusal(const Setting<T>& setting, absl::string_view name,
                     const Parts&... predicate) {
  return absl::InvalidArgumentError(
      absl::StrCat(SettingPlace(setting, name), " ", predicate...));
}

}  // namespace fsdp

#endif  // FSDP_PREPARE_REFUSAL_H_
