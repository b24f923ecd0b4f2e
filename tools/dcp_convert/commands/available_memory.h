// SPDX-License-Identifier: Apache-2.0
// The memory that the system can still give this process: the least that the
// address space limit, the control groups and the machine leave. The value is a
// snapshot, because other processes may take the memory. Any thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_AVAILABLE_MEMORY_H_
#define TOOLS_DCP_CONVERT_COMMANDS_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

struct AvailableMemory {
  uint64_t bytes = UINT64_MAX;
  std::string limit;  // the limit's name, for a message
};

// `root` is put in front of /proc and /sys, for tests. A limit that cannot be
// read is ignored.
AvailableMemory FindAvailableMemory(absl::string_view root = "");

// ResourceExhausted, with the figures, unless `needed_bytes` are available.
absl::Status CheckAvailableMemory(uint64_t needed_bytes,
                                  const AvailableMemory& available);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_AVAILABLE_MEMORY_H_
