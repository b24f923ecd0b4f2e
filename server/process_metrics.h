// What Prometheus expects to know of any process: process_cpu_seconds_total,
// process_resident_memory_bytes, process_open_fds, process_max_fds and
// process_start_time_seconds. Read from the kernel when it is scraped.
#ifndef SERVER_PROCESS_METRICS_H_
#define SERVER_PROCESS_METRICS_H_

#include <memory>
#include <vector>

#include "server/metrics.h"

namespace dcp::server {

// They are there as long as the handles.
std::vector<std::shared_ptr<void>> AddProcessMetrics(Metrics& metrics);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_METRICS_H_
