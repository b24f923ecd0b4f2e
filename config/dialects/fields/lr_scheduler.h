// SPDX-License-Identifier: Apache-2.0
// The learning rate schedule in transformers' words, which axolotl also uses: a
// name, warmup_steps, warmup_ratio. For their readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_
#define CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_

#include "absl/strings/string_view.h"
#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// `name_key` is the key with the schedule's name. Settings that the file lacks
// stay unchanged in `loop`. An unknown schedule is a problem, because another
// one would train something else.
void ReadLrScheduler(absl::string_view name_key, Section& section,
                     LoopConfig& loop);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_LR_SCHEDULER_H_
