// SPDX-License-Identifier: Apache-2.0
// The optimizer that a config names. Only AdamW is trained here, with the
// config's learning rate, betas, eps and weight decay: another rule with the
// same numbers would train something else. For the readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_OPTIMIZER_NAME_H_
#define CONFIG_DIALECTS_FIELDS_OPTIMIZER_NAME_H_

#include "absl/strings/string_view.h"
#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Reads the section's `key`, if it is there. AdamW under any name is accepted,
// AdamW with reduced or paged state is a changed finding, and any other
// optimizer is a problem.
void ReadOptimizerName(absl::string_view key, Section& section);

// As ReadOptimizerName, for a class path, "torch.optim.Adam", next to the
// class's arguments: Adam without weight decay is AdamW without it, and
// FusedAdam is AdamW. Both have no weight decay unless it is written. Read this
// key first.
void ReadOptimizerClass(absl::string_view key, Section& section,
                        LoopConfig& loop);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_OPTIMIZER_NAME_H_
