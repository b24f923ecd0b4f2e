// SteadyAlarm: calls a function after some time, by the steady clock: a clock
// that is set meanwhile neither hastens nor delays it. Made and destroyed by
// one thread.
#ifndef SERVER_STEADY_ALARM_H_
#define SERVER_STEADY_ALARM_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace dcp::server {

class SteadyAlarm {
 public:
  // `ring` is called once, by a thread of this, unless this is destroyed
  // before. Durations of more than 24 days are 24 days.
  SteadyAlarm(absl::Duration after, std::function<void()> ring);
  // Waits for `ring` where it is being called.
  ~SteadyAlarm();
  SteadyAlarm(const SteadyAlarm&) = delete;
  SteadyAlarm& operator=(const SteadyAlarm&) = delete;

 private:
  int cancel_event_;
  std::thread thread_;
};

}  // namespace dcp::server

#endif  // SERVER_STEADY_ALARM_H_
