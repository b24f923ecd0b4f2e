// SPDX-License-Identifier: Apache-2.0
// The standard Prometheus metrics of a process: process_cpu_seconds_total,
// process_resident_memory_bytes, process_open_fds, process_max_fds and
// process_start_time_seconds. Read from the kernel when they are scraped.
#ifndef SERVER_PROCESS_PROCESS_METRICS_H_
#define SERVER_PROCESS_PROCESS_METRICS_H_

#include <memory>
#include <vector>

#include "server/process/metrics.h"

namespace dcp::server {

// The metrics exist as long as the returned handles.
std::vector<std::shared_ptr<void>> AddProcessMetrics(Metrics& metrics);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_PROCESS_METRICS_H_
