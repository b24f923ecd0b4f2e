// SPDX-License-Identifier: Apache-2.0
// Words as a sentence lists them. Pure; any thread.
#ifndef CONFIG_DOCUMENT_ALTERNATIVES_H_
#define CONFIG_DOCUMENT_ALTERNATIVES_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace fsdp::config {

// "A", "A or B", "A, B or C".
inline std::string Alternatives(const std::vector<absl::string_view>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "),
                      " or ", words.back());
}

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_ALTERNATIVES_H_
