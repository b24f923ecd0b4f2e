// SPDX-License-Identifier: Apache-2.0
// NewRequestId: a random UUID, version 4, under which a job is submitted, so
// that submitting it again is harmless. Any thread.
#ifndef CLIENT_REQUEST_ID_H_
#define CLIENT_REQUEST_ID_H_

#include <string>

namespace dcp::client {

// "f47ac10b-58cc-4372-a567-0e02b2c3d479".
std::string NewRequestId();

}  // namespace dcp::client

#endif  // CLIENT_REQUEST_ID_H_
