// SPDX-License-Identifier: Apache-2.0
// Metrics: a server's metrics for Prometheus. Counters only go up; gauges are
// read from their owners when they are scraped. Labels are our own words, never
// a caller's, because each new label is kept forever. Thread-safe.
#ifndef SERVER_PROCESS_METRICS_H_
#define SERVER_PROCESS_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace dcp::server {

// One value of a gauge with a label.
struct LabeledValue {
  std::string label;  // the value of the label
  double value = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // tessera_requests_total{method, code}
  void CountRequest(absl::string_view method, absl::string_view code);
  // tessera_client_requests_total{client, code}. Only for clients with a token,
  // as there are no more of these than the operator named.
  void CountClientRequest(absl::string_view client, absl::string_view code);
  // tessera_client_streamed_bytes_total{client}; the same.
  void CountClientBytes(absl::string_view client, uint64_t bytes);
  // tessera_jobs_total{kind, state}: jobs that ended.
  void CountJob(absl::string_view kind, absl::string_view state);
  // tessera_bytes_total{what}: "read", "written", "streamed", or "shared"
  // (streamed without a read, because another stream had read them).
  void CountBytes(absl::string_view what, uint64_t bytes);

  // The histograms tessera_request_seconds{method} and
  // tessera_job_seconds{kind}.
  void ObserveRequest(absl::string_view method, absl::Duration time);
  void ObserveJob(absl::string_view kind, absl::Duration time);

  // Adds a gauge; `value` is called on the scraper's thread:
  // "tessera_jobs_running", "tessera_jobs_queued", "tessera_streams",
  // "tessera_memory_used_bytes", "tessera_memory_limit_bytes". Destroying the
  // handle waits for a call in progress; afterwards `value` is not called. The
  // handle may outlive this.
  std::shared_ptr<void> AddGauge(const std::string& name,
                                 const std::string& help,
                                 std::function<double()> value);

  // The same with several values, told apart by the value of `label`:
  // "tessera_root_up", "tessera_root_free_bytes".
  std::shared_ptr<void> AddGauges(
      const std::string& name, const std::string& help,
      const std::string& label,
      std::function<std::vector<LabeledValue>()> values);

  // The same for values that only go up: "tessera_connections_refused_total",
  // "tessera_connections_cut_total".
  std::shared_ptr<void> AddCounter(const std::string& name,
                                   const std::string& help,
                                   std::function<double()> value);

  // Serves http://ADDRESS/metrics from now on and returns the port. ADDRESS is
  // e.g. "127.0.0.1:9420" or "[::]:0"; port 0 is any free port. Call once.
  absl::StatusOr<int> Listen(const std::string& address);
  // All metrics in Prometheus' text format; for tests.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_METRICS_H_
