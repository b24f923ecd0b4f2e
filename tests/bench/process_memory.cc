// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/process_memory.h"

#include <fstream>
#include <string>

#include "dcp/base/check.h"

namespace dcp {
namespace {

// A line in /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line) && line.rfind(name + ":", 0) != 0) {
  }
  DCP_CHECK(status.good(), "/proc/self/status has no ", name);
  return std::stoll(line.substr(name.size() + 1)) * 1024;
}

}  // namespace

int64_t PrivateBytes() { return StatusBytes("RssAnon"); }

// The file page count only grows, so there were at most as many at the peak as
// now.
int64_t PeakPrivateBytes() {
  return StatusBytes("VmHWM") - StatusBytes("RssFile") -
         StatusBytes("RssShmem");
}

void ForgetPeak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;
  DCP_CHECK(refs.good(), "cannot write /proc/self/clear_refs");
}

}  // namespace dcp
