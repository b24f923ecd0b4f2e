// SPDX-License-Identifier: Apache-2.0
// The most memory that this process ever had resident. Any thread.
#ifndef DCP_BASE_PEAK_MEMORY_H_
#define DCP_BASE_PEAK_MEMORY_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace dcp {

// In bytes; 0 if the kernel does not report it.
uint64_t PeakMemoryBytes();

// The same from the text of /proc/self/status.
uint64_t PeakMemoryFrom(absl::string_view status);

}  // namespace dcp

#endif  // DCP_BASE_PEAK_MEMORY_H_
