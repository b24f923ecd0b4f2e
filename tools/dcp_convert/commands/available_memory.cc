// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/available_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/page_bytes.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// Empty if it cannot be read.
std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number after `label` at the beginning of a line; 0 if there is none.
uint64_t NumberAfter(absl::string_view text, absl::string_view label) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, label)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t number = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &number)) return number;
  }
  return 0;
}

void Limit(AvailableMemory& available, uint64_t most, uint64_t used,
           std::string limit) {
  const uint64_t left = most - std::min(most, used);
  if (left >= available.bytes) return;
  available = {.bytes = left, .limit = std::move(limit)};
}

void LimitByAddressSpace(const std::string& root, AvailableMemory& available) {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  const std::string sizes = Contents(root + "/proc/self/statm");
  uint64_t num_pages = 0;
  if (!absl::SimpleAtoi(sizes.substr(0, sizes.find(' ')), &num_pages)) return;
  Limit(available, limit.rlim_cur, num_pages * PageBytes(),
        "the limit of the address space (ulimit -v)");
}

// Reads control groups, version 2: the process's own group and all parents. A
// group's page cache does not count, because the system reclaims it when memory
// is needed.
void LimitByGroups(const std::string& root, AvailableMemory& available) {
  std::string group;
  for (absl::string_view line :
       absl::StrSplit(Contents(root + "/proc/self/cgroup"), '\n')) {
    if (absl::ConsumePrefix(&line, "0::/")) group = std::string(line);
  }
  while (true) {
    const std::string directory = absl::StrCat(root, "/sys/fs/cgroup/", group);
    const std::string text = Contents(directory + "/memory.max");
    uint64_t most = 0;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &most)) {
      const std::string stat = Contents(directory + "/memory.stat");
      Limit(available, most,
            NumberAfter(stat, "anon ") + NumberAfter(stat, "shmem ") +
                NumberAfter(stat, "slab_unreclaimable "),
            absl::StrCat("memory.max of control group /", group));
    }
    if (group.empty()) return;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

void LimitByMachine(const std::string& root, AvailableMemory& available) {
  const std::string text = Contents(root + "/proc/meminfo");
  const uint64_t kib =
      NumberAfter(text, "MemAvailable:") + NumberAfter(text, "SwapFree:");
  if (kib > 0) Limit(available, kib << 10, 0, "what the machine has left");
}

}  // namespace

AvailableMemory FindAvailableMemory(absl::string_view root) {
  const std::string base(root);
  AvailableMemory available;
  LimitByAddressSpace(base, available);
  LimitByGroups(base, available);
  LimitByMachine(base, available);
  return available;
}

absl::Status CheckAvailableMemory(uint64_t needed_bytes,
                                  const AvailableMemory& available) {
  if (needed_bytes <= available.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      FormatMemory(needed_bytes), " of memory are needed for blocks, ",
      FormatMemory(available.bytes), " are available by ", available.limit,
      "; allow less with --max-memory, or raise that limit"));
}

}  // namespace dcp::tools
