// SPDX-License-Identifier: Apache-2.0
// The part of training that a key's words name. For Section. Pure; any thread.
#ifndef CONFIG_DOCUMENT_TRAINING_SUBJECT_H_
#define CONFIG_DOCUMENT_TRAINING_SUBJECT_H_

#include "absl/strings/string_view.h"

namespace fsdp::config {

// "sharding" for tp_size and fsdp_plan, "an optimizer" for optim_config, "a
// learning rate" for lr_encoder; empty: none of these.
absl::string_view TrainingSubject(absl::string_view key);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_TRAINING_SUBJECT_H_
