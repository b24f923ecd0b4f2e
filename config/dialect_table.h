// SPDX-License-Identifier: Apache-2.0
// The one list of dialects: their names, readers and writers. Pure; any thread.
#ifndef CONFIG_DIALECT_TABLE_H_
#define CONFIG_DIALECT_TABLE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp {
namespace config {

struct DialectRow {
  ConfigDialect dialect;
  absl::string_view name;     // as options spell it
  absl::string_view program;  // as the program's authors spell it
  void (*read)(const Node& root, TrainConfig& config, Findings& findings);
  // Null for programs with files that are mostly about models and data.
  std::string (*write)(const TrainConfig& config, Findings& findings);
};

absl::Span<const DialectRow> DialectTable();
const DialectRow& GetRow(ConfigDialect dialect);

}  // namespace config

// Every dialect, in the order in which users see them.
std::vector<ConfigDialect> all_dialects();
// As options spell it: "accelerate", "torchtitan", "prime-rl".
absl::string_view dialect_name(ConfigDialect dialect);
std::optional<ConfigDialect> dialect_named(absl::string_view name);
// As the program's authors spell it: "TorchTitan", "NeMo Automodel".
absl::string_view dialect_program(ConfigDialect dialect);

}  // namespace fsdp

#endif  // CONFIG_DIALECT_TABLE_H_
