// SPDX-License-Identifier: Apache-2.0
// Counts the requests that wait to be retried.
// Tested by tests/dcp/io/s3/s3_retries_test.cc.
#include "dcp/io/object/retried_requests.h"

#include <atomic>

namespace dcp {
namespace {

// Relaxed: a count says nothing about other memory.
std::atomic<int64_t> num_requests = 0;

}  // namespace

int64_t NumRetriedRequests() {
  return num_requests.load(std::memory_order_relaxed);
}

RetriedRequest::RetriedRequest() { ++num_requests; }

RetriedRequest::~RetriedRequest() { --num_requests; }

}  // namespace dcp
