// SPDX-License-Identifier: Apache-2.0

#include "client/request_id.h"

#include "dcp/base/unique_bits.h"

namespace dcp::client {

std::string NewRequestId() { return NewUuid(); }

}  // namespace dcp::client
