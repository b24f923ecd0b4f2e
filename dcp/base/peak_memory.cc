// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/peak_memory.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"

namespace dcp {

uint64_t PeakMemoryBytes() {
  // Not getrusage: that maximum survives exec, so it may be the parent's.
  std::ifstream file("/proc/self/status");
  std::ostringstream text;
  text << file.rdbuf();
  return PeakMemoryFrom(text.str());
}

uint64_t PeakMemoryFrom(absl::string_view status) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, "VmHWM:")) continue;
    absl::ConsumeSuffix(&line, " kB");
    uint64_t kibibytes = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kibibytes)) {
      return 0;
    }
    return CheckedMul(kibibytes, 1024).value_or(0);
  }
  return 0;
}

}  // namespace dcp
