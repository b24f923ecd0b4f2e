// SPDX-License-Identifier: Apache-2.0
// Shared by the writers of accelerate's and transformers' options: how they
// write a config, with a finding for each setting that these options cannot
// express. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_WRITTEN_FSDP_OPTIONS_H_
#define CONFIG_DIALECTS_FIELDS_WRITTEN_FSDP_OPTIONS_H_

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// reshard_after_forward, cast to true or false.
bool WrittenReshard(const TrainConfig& config, Findings& findings);

// "TRANSFORMER_BASED_WRAP" and so on.
absl::string_view WrittenWrapPolicy(const TrainConfig& config,
                                    Findings& findings);

// "SHARDED_STATE_DICT" or "FULL_STATE_DICT".
absl::string_view WrittenStateDictType(const TrainConfig& config);

// Whether every layer's activations are computed again, or none.
bool WrittenActivationCheckpointing(const TrainConfig& config,
                                    Findings& findings);

// Whether activations are offloaded, which requires checkpointing there.
bool WrittenActivationOffload(const TrainConfig& config, Findings& findings);

// "bf16", "fp16" or "no".
absl::string_view WrittenMixedPrecision(const TrainConfig& config,
                                        Findings& findings);

// Adds findings for the sharding settings that differ from `read`, which is how
// a file for copies reads: such a file leaves them out.
void LeaveOutSharding(const TrainConfig& config, const TrainConfig& read,
                      absl::string_view dialect, Findings& findings);

// Adds findings for everything that neither dialect can express.
void LeaveOutCommon(const TrainConfig& config, absl::string_view dialect,
                    Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_WRITTEN_FSDP_OPTIONS_H_
