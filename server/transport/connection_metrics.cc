// SPDX-License-Identifier: Apache-2.0
// Adds the gauges and counters of connections.
//
// Tested by tests/server/server_watch_test.cc.
#include "server/transport/connection_metrics.h"

#include "server/transport/call_load.h"
#include "server/transport/guarded_connections.h"

namespace dcp::server {

std::vector<std::shared_ptr<void>> AddConnectionMetrics(Acceptor& acceptor,
                                                        Metrics& metrics) {
  std::vector<std::shared_ptr<void>> handles;
  handles.push_back(metrics.AddGauge(
      "tessera_connections", "Open connections of clients.",
      [&acceptor] { return static_cast<double>(acceptor.num_open()); }));
  handles.push_back(metrics.AddGauge(
      "tessera_open_calls",
      "Calls that clients have begun, also those without a whole request.",
      [] { return static_cast<double>(ProcessCallLoad().num_open); }));
  handles.push_back(metrics.AddGauge(
      "tessera_request_memory_bytes",
      "Estimated memory of requests that are incomplete or not answered yet.",
      [] { return static_cast<double>(ProcessCallLoad().request_bytes); }));
  handles.push_back(metrics.AddCounter(
      "tessera_connections_refused_total",
      "Connections closed at once because there were too many.",
      [&acceptor] { return static_cast<double>(acceptor.num_refused()); }));
  handles.push_back(metrics.AddCounter(
      "tessera_connections_cut_total",
      "Connections ended because the client sent too much: see Limits in "
      "server/README.md.",
      [] { return static_cast<double>(NumConnectionsCut()); }));
  handles.push_back(metrics.AddCounter(
      "tessera_handshakes_failed_total",
      "TLS connections that ended before the client had sent anything.",
      [] { return static_cast<double>(NumFailedHandshakes()); }));
  return handles;
}

}  // namespace dcp::server
