// SPDX-License-Identifier: Apache-2.0
// How many requests to object stores of this process wait to be tried again, so
// that whoever shows progress can say why nothing moves. Any thread.
#ifndef DCP_IO_OBJECT_RETRIED_REQUESTS_H_
#define DCP_IO_OBJECT_RETRIED_REQUESTS_H_

#include <cstdint>

namespace dcp {

int64_t NumRetriedRequests();

// Counts as one while it lives. A store makes it when a try of a request has
// failed, and destroys it when the request has ended.
class RetriedRequest {
 public:
  RetriedRequest();
  ~RetriedRequest();
  RetriedRequest(const RetriedRequest&) = delete;
  RetriedRequest& operator=(const RetriedRequest&) = delete;
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_RETRIED_REQUESTS_H_
