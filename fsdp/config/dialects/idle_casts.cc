#include "fsdp/config/dialects/idle_casts.h"

namespace fsdp::config {

void DropIdleCasts(PrecisionConfig& precision) {
  if (*precision.param_dtype == *precision.dtype) precision.param_dtype = {};
  if (!precision.param_dtype->has_value() &&
      *precision.reduce_dtype == *precision.dtype) {
    precision.reduce_dtype = {};
  }
}

}  // namespace fsdp::config
