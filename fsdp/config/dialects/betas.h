// Reads AdamW's betas as torch takes them: a list of two numbers. For the
// dialects' readers. Any thread.
#ifndef FSDP_CONFIG_DIALECTS_BETAS_H_
#define FSDP_CONFIG_DIALECTS_BETAS_H_

#include "fsdp/config/document/section.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// Reads the section's `betas`, if it has any. Anything but two numbers from 0
// to 1 is a problem.
void ReadBetas(Section& section, LoopConfig& loop);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_BETAS_H_
