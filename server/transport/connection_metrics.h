// SPDX-License-Identifier: Apache-2.0
// Metrics for connections, and for the memory that gRPC holds for them.
#ifndef SERVER_TRANSPORT_CONNECTION_METRICS_H_
#define SERVER_TRANSPORT_CONNECTION_METRICS_H_

#include <memory>
#include <vector>

#include "server/process/metrics.h"
#include "server/transport/acceptor.h"

namespace dcp::server {

// Adds them; the acceptor must outlive the handles.
std::vector<std::shared_ptr<void>> AddConnectionMetrics(Acceptor& acceptor,
                                                        Metrics& metrics);

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_CONNECTION_METRICS_H_
