// SPDX-License-Identifier: Apache-2.0
// CallLoad: how much of gRPC's resources all connections' calls take, and how
// much they may take. One per process. The members are atomic.
#ifndef SERVER_TRANSPORT_CALL_LOAD_H_
#define SERVER_TRANSPORT_CALL_LOAD_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace dcp::server {

// A short frame keeps the whole piece of memory that it was read into. gRPC's
// pieces have 8 KiB at first.
inline constexpr int64_t kReadPieceBytes = 16 << 10;
// gRPC's memory for a call that has begun, without the request: 15 KiB, and the
// piece that the headers were read into.
inline constexpr int64_t kCallBytes = 32 << 10;
// For all requests that are incomplete or not answered yet, over all
// connections. Beyond this, the connection that takes the most is ended.
inline constexpr int64_t kMaxRequestMemory = int64_t{256} << 20;
// From a call's headers until the request is complete.
inline constexpr absl::Duration kMaxRequestTime = absl::Minutes(1);

struct CallLoad {
  // The calls that the server's code knows. The limit is soft: see
  // kMaxCallsUnderLoad.
  std::atomic<int64_t> num_calls = 0;
  std::atomic<int64_t> max_calls = std::numeric_limits<int64_t>::max();

  // The calls that clients have begun and that have not ended; the server's
  // code does not know those without a complete request.
  std::atomic<int64_t> num_open = 0;
  // For one connection, as gRPC offers in SETTINGS. gRPC does not enforce it
  // for a client that does not acknowledge these.
  std::atomic<int64_t> max_open_per_connection =
      std::numeric_limits<int64_t>::max();

  // The estimate for gRPC's memory for requests that are incomplete or not
  // answered yet.
  std::atomic<int64_t> request_bytes = 0;
  std::atomic<int64_t> max_request_bytes = kMaxRequestMemory;

  bool HasTooManyCalls() const { return num_calls > max_calls; }
  bool HasTooManyRequestBytes() const {
    return request_bytes > max_request_bytes;
  }
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_CALL_LOAD_H_
