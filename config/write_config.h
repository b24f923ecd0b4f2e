// SPDX-License-Identifier: Apache-2.0
// Writes a training config in a dialect, whatever it was read from. Any thread.
#ifndef CONFIG_WRITE_CONFIG_H_
#define CONFIG_WRITE_CONFIG_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp {

// Whether configs of the dialect are written; those of others are only read.
bool can_write(Dialect dialect);
// Their names, as options spell them.
std::vector<absl::string_view> written_dialects();

// A whole file of the dialect, always for FSDP2. What the dialect cannot
// express is in `findings`, as changed; the rest reads back as the same
// training. A degree of the mesh that it cannot express, or only as other
// ranks, is a problem, and so is a dialect that is only read; the text is then
// empty.
std::string write_config(const TrainConfig& config, Dialect dialect,
                         Findings& findings);

}  // namespace fsdp

#endif  // CONFIG_WRITE_CONFIG_H_
