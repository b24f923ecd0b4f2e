// SteadyAlarm: calls a function after some time on the steady clock, which
// setting the system's clock does not affect. Made and destroyed by one thread.
#ifndef SERVER_PROCESS_STEADY_ALARM_H_
#define SERVER_PROCESS_STEADY_ALARM_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace dcp::server {

class SteadyAlarm {
 public:
  // Calls `ring` once, on a thread of this object, unless it is destroyed
  // before. Durations of more than 24 days are cut to 24 days.
  SteadyAlarm(absl::Duration after, std::function<void()> ring);
  // Waits for `ring` if it is being called.
  ~SteadyAlarm();
  SteadyAlarm(const SteadyAlarm&) = delete;
  SteadyAlarm& operator=(const SteadyAlarm&) = delete;

 private:
  int cancel_event_;
  std::thread thread_;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_STEADY_ALARM_H_
