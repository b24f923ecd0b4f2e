// The switch `fsdp` of transformers' TrainingArguments, which axolotl has as
// well: true, or as it was written before, words: "full_shard auto_wrap", in a
// string or a list. For the readers. Any thread.
#ifndef FSDP_CONFIG_FSDP_WORDS_H_
#define FSDP_CONFIG_FSDP_WORDS_H_

#include "fsdp/config/document.h"
#include "fsdp/config/findings.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// Whether it is on. Null: it is absent.
bool AsksForFsdp(const Node* fsdp);

// What its words say. What fsdp_config says wins, so that is read before. A
// word that is none of theirs is a problem.
void ReadFsdpWords(const Node& fsdp, TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_FSDP_WORDS_H_
