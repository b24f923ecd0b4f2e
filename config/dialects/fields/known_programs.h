// SPDX-License-Identifier: Apache-2.0
// Programs with files that have keys of their own. Most are not read here:
// their files are found near training configs. For dialect_of. Pure; any
// thread.
#ifndef CONFIG_DIALECTS_FIELDS_KNOWN_PROGRAMS_H_
#define CONFIG_DIALECTS_FIELDS_KNOWN_PROGRAMS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "config/document/document.h"
#include "config/model/train_config.h"

namespace fsdp::config {

struct KnownProgram {
  absl::string_view name = "";  // "DeepSpeed", "Cargo"; empty: unknown
  std::optional<ConfigDialect> dialect = {};  // if such a file is read here

  // Whether a file is refused by the program's name.
  bool is_refused() const { return !name.empty() && !dialect.has_value(); }
};

KnownProgram FindKnownProgram(const Node& root);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_KNOWN_PROGRAMS_H_
