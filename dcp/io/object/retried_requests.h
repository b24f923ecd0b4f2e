// SPDX-License-Identifier: Apache-2.0
// The number of this process's object store requests that wait to be retried,
// so that a progress display can say why no bytes move. Any thread.
#ifndef DCP_IO_OBJECT_RETRIED_REQUESTS_H_
#define DCP_IO_OBJECT_RETRIED_REQUESTS_H_

#include <cstdint>

namespace dcp {

int64_t NumRetriedRequests();

// Counts as one while it lives. A store creates it when a try has failed, and
// destroys it when the request has ended.
class RetriedRequest {
 public:
  RetriedRequest();
  ~RetriedRequest();
  RetriedRequest(const RetriedRequest&) = delete;
  RetriedRequest& operator=(const RetriedRequest&) = delete;
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_RETRIED_REQUESTS_H_
