// What memory the system may still give this process: the least of what the
// limit of its address space, its control groups and the machine leave. A look
// at one moment; others may take it. Any thread.
#ifndef TOOLS_AVAILABLE_MEMORY_H_
#define TOOLS_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

struct AvailableMemory {
  uint64_t bytes = UINT64_MAX;
  std::string limit;  // whose, for a message
};

// `root` stands before /proc and /sys, for tests. What cannot be read is no
// limit.
AvailableMemory FindAvailableMemory(absl::string_view root = "");

// ResourceExhausted, with the figures, unless `needed_bytes` are available.
absl::Status CheckAvailableMemory(uint64_t needed_bytes,
                                  const AvailableMemory& available);

}  // namespace dcp::tools

#endif  // TOOLS_AVAILABLE_MEMORY_H_
