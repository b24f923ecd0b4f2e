// SPDX-License-Identifier: Apache-2.0
// Reads AdamW's betas as torch takes them: a list of two numbers. For the
// dialects' readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_BETAS_H_
#define CONFIG_DIALECTS_FIELDS_BETAS_H_

#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Reads the section's `betas`, if it has any. Anything but two numbers from 0
// to 1 is a problem.
void ReadBetas(Section& section, LoopConfig& loop);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_BETAS_H_
