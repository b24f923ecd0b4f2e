// SPDX-License-Identifier: Apache-2.0
// Writes a training config in any dialect that has a writer. Any thread.
#ifndef CONFIG_WRITE_CONFIG_H_
#define CONFIG_WRITE_CONFIG_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp {

// Whether configs in the dialect are written; others are only read.
bool can_write(ConfigDialect dialect);
// Their names, as options spell them.
std::vector<absl::string_view> written_dialects();

// A whole file in the dialect, always for FSDP2. Settings that the dialect
// cannot express are changed findings; the rest reads back as the same
// training. A mesh degree that it cannot express, or only with other ranks, is
// a problem, and so is a dialect that is only read; the text is then empty.
std::string write_config(const TrainConfig& config, ConfigDialect dialect,
                         Findings& findings);

}  // namespace fsdp

#endif  // CONFIG_WRITE_CONFIG_H_
