// SPDX-License-Identifier: Apache-2.0
// Formats and parses quantities for people: sizes on the command line; bytes,
// counts and times in output. Pure; any thread.
#ifndef TOOLS_TERMINAL_QUANTITY_H_
#define TOOLS_TERMINAL_QUANTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

// The bytes that "256MiB", "5GB", "1.5GiB", "4096" or "64K" mean. Decimal units
// are KB, MB, GB, TB; binary ones are KiB, MiB, GiB, TiB and the letters K, M,
// G, T alone. Case and a space before the unit do not matter. Fractions of a
// byte are dropped. InvalidArgument names the text.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

// "0 B", "999 B", "12.8 MB", "1.30 TB": decimal units, three digits.
std::string FormatBytes(uint64_t bytes);

// "58 MiB", rounded up; used for memory.
std::string FormatMemory(uint64_t bytes);

// "12,345,678".
std::string FormatCount(uint64_t count);

// "3 tensors", "1 tensor".
std::string FormatPlural(uint64_t count, absl::string_view noun);

// "0.02 s", "14.3 s", "1:07", "2:05:09".
std::string FormatSeconds(double seconds);

}  // namespace dcp::tools

#endif  // TOOLS_TERMINAL_QUANTITY_H_
