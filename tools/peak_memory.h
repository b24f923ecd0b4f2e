// The most memory that this process ever had resident. Any thread.
#ifndef TOOLS_PEAK_MEMORY_H_
#define TOOLS_PEAK_MEMORY_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace dcp::tools {

// Bytes; 0 where the kernel does not say.
uint64_t PeakMemoryBytes();

// The same from the text of /proc/self/status.
uint64_t PeakMemoryFrom(absl::string_view status);

}  // namespace dcp::tools

#endif  // TOOLS_PEAK_MEMORY_H_
