// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/save_id.h"

#include "dcp/base/unique_bits.h"

namespace dcp {

std::string NewSaveId() { return NewUuid(); }

}  // namespace dcp
