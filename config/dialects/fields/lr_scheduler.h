// SPDX-License-Identifier: Apache-2.0
// The schedule of the learning rate in the words of transformers, which axolotl
// has as well: a name, warmup_steps, warmup_ratio. For their readers. Any
// thread.
#ifndef CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_
#define CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_

#include "absl/strings/string_view.h"
#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// `name_key` is the key of the schedule's name. What the file does not say
// stays as it is in `loop`. A schedule that is not implemented here is a
// problem, because another one would train something else.
void ReadLrScheduler(absl::string_view name_key, Section& section,
                     LoopConfig& loop);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_
