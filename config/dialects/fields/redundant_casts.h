// SPDX-License-Identifier: Apache-2.0
// Casts that change nothing, for readers of dialects that always name a type:
// float32 parameters "cast" to float32. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_REDUNDANT_CASTS_H_
#define CONFIG_DIALECTS_FIELDS_REDUNDANT_CASTS_H_

#include "config/model/train_config.h"

namespace fsdp::config {

// Unsets param_dtype if parameters already have it, and then reduce_dtype if
// gradients have it, so that configs that mean the same are equal.
void DropRedundantCasts(PrecisionConfig& precision);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_REDUNDANT_CASTS_H_
