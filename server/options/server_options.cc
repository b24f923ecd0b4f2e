// SPDX-License-Identifier: Apache-2.0
// Computes the limits that follow from other options if they are not set.
//
// Tested by tests/server/options/command_line_test.cc.
#include "server/options/server_options.h"

#include <algorithm>

#include "server/memory/memory_shares.h"

namespace dcp::server {

uint64_t JobMemoryBytes(const ServerOptions& options) {
  if (options.job_memory_bytes != 0) return options.job_memory_bytes;
  return std::min(
      kDefaultJobBytes,
      DivideMemory(options.max_memory_bytes, options.num_readers).jobs_bytes);
}

int64_t StreamsPerClient(const ServerOptions& options) {
  if (options.max_streams_per_client != 0) {
    return options.max_streams_per_client;
  }
  return std::max<int64_t>(1, options.max_streams / 4 * 3);
}

uint64_t ClientMemoryBytes(const ServerOptions& options) {
  if (options.client_memory_bytes != 0) return options.client_memory_bytes;
  return std::max(options.max_memory_bytes / 2,
                  std::min(options.max_memory_bytes, kMinClientBytes));
}

}  // namespace dcp::server
