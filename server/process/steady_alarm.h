// SPDX-License-Identifier: Apache-2.0
// SteadyAlarm: calls a function after some time on the steady clock, which
// setting the system's clock does not affect. Made and destroyed by one thread.
#ifndef SERVER_PROCESS_STEADY_ALARM_H_
#define SERVER_PROCESS_STEADY_ALARM_H_

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "dcp/base/thread.h"

namespace dcp::server {

class SteadyAlarm {
 public:
  SteadyAlarm();
  // Waits for `ring` if it is being called.
  ~SteadyAlarm();
  SteadyAlarm(const SteadyAlarm&) = delete;
  SteadyAlarm& operator=(const SteadyAlarm&) = delete;

  // Calls `ring` once, on a thread of this object, unless that is destroyed
  // before. Durations above 24 days are cut to 24 days. Called once; an error
  // if the system starts no thread.
  absl::Status Start(absl::Duration after, std::function<void()> ring);

 private:
  int cancel_event_;
  std::optional<Thread> thread_;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_STEADY_ALARM_H_
