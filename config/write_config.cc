// SPDX-License-Identifier: Apache-2.0
// Calls the dialect's writer.
//
// Tested by tests/config/round_trip_test.cc.
#include "config/write_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "config/dialect_table.h"

namespace fsdp {

bool can_write(ConfigDialect dialect) {
  return config::GetRow(dialect).write != nullptr;
}

std::vector<absl::string_view> written_dialects() {
  std::vector<absl::string_view> names;
  for (const config::DialectRow& row : config::DialectTable()) {
    if (row.write != nullptr) names.push_back(row.name);
  }
  return names;
}

std::string write_config(const TrainConfig& config, ConfigDialect dialect,
                         Findings& findings) {
  Findings written;
  std::string text;
  if (can_write(dialect)) {
    text = config::GetRow(dialect).write(config, written);
  } else {
    written.Problem({}, absl::StrCat("configs of ", dialect_program(dialect),
                                     " can be read, but not written: most of "
                                     "their keys are about models and data"));
  }
  if (written.has_problems()) text.clear();
  findings.Append(std::move(written));
  return text;
}

}  // namespace fsdp
