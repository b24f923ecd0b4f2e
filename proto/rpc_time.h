// SPDX-License-Identifier: Apache-2.0
// Times for gRPC's deadlines and alarms, on the clock that does not change when
// the system's clock is set. Any thread.
#ifndef PROTO_RPC_TIME_H_
#define PROTO_RPC_TIME_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace dcp {

inline gpr_timespec RpcTimeIn(absl::Duration after) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(after), GPR_TIMESPAN));
}

}  // namespace dcp

#endif  // PROTO_RPC_TIME_H_
