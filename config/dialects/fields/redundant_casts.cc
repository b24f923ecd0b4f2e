// SPDX-License-Identifier: Apache-2.0
// Compares each cast with the type that is there already.
//
// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include "config/dialects/fields/redundant_casts.h"

namespace fsdp::config {

void DropRedundantCasts(PrecisionConfig& precision) {
  if (*precision.param_dtype == *precision.dtype) precision.param_dtype = {};
  if (!precision.param_dtype->has_value() &&
      *precision.reduce_dtype == *precision.dtype) {
    precision.reduce_dtype = {};
  }
}

}  // namespace fsdp::config
