// SPDX-License-Identifier: Apache-2.0
// The switch `fsdp` in transformers' TrainingArguments and in axolotl: true,
// or, in the older spelling, words ("full_shard auto_wrap") as a string or a
// list. For the readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_FSDP_WORDS_H_
#define CONFIG_DIALECTS_FIELDS_FSDP_WORDS_H_

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Whether it is on. `fsdp` is null if it is absent.
bool AsksForFsdp(const Node* fsdp);

// Reads the words. The options of fsdp_config take precedence, so read those
// first. An unknown word is a problem.
void ReadFsdpWords(const Node& fsdp, TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_FSDP_WORDS_H_
