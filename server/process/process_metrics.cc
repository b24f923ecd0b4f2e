// SPDX-License-Identifier: Apache-2.0

#include "server/process/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/page_bytes.h"

namespace dcp::server {
namespace {

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

double ResidentBytes() {
  // The pages of the program, and how many of them are in memory.
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(PageBytes());
}

double OpenFiles() {
  DIR* const dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  double number = -3;  // excludes ".", ".." and `dir` itself
  while (readdir(dir) != nullptr) ++number;
  closedir(dir);
  return number;
}

double MaxFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<std::shared_ptr<void>> AddProcessMetrics(Metrics& metrics) {
  std::vector<std::shared_ptr<void>> handles;
  handles.push_back(metrics.AddCounter(
      "process_cpu_seconds_total", "CPU time, user and system.", &CpuSeconds));
  handles.push_back(metrics.AddGauge("process_resident_memory_bytes",
                                     "Memory that is resident.",
                                     &ResidentBytes));
  handles.push_back(metrics.AddGauge("process_open_fds",
                                     "Open file descriptors.", &OpenFiles));
  handles.push_back(metrics.AddGauge("process_max_fds",
                                     "Maximum number of open file descriptors.",
                                     &MaxFiles));
  handles.push_back(metrics.AddGauge(
      "process_start_time_seconds", "Since 1970.",
      [start = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())] {
        return start;
      }));
  return handles;
}

}  // namespace dcp::server
