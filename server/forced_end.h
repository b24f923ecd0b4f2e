// ForcedEnd: the end of a process some of whose threads a file system holds in
// the kernel, where nobody can end them. After a time it says so and exits
// without destroying anything: as after a kill, unfinished jobs go on at the
// next start. Thread-safe.
#ifndef SERVER_FORCED_END_H_
#define SERVER_FORCED_END_H_

#include <functional>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/steady_alarm.h"

namespace dcp::server {

class ForcedEnd {
 public:
  // The exit code; `flush` is called last, for the log to be written.
  ForcedEnd(int exit_code, std::function<void()> flush)
      : exit_code_(exit_code), flush_(std::move(flush)) {}
  ForcedEnd(const ForcedEnd&) = delete;
  ForcedEnd& operator=(const ForcedEnd&) = delete;

  // The process ends after so long, unless this is destroyed before. Of several
  // calls the earliest end counts.
  void Within(absl::Duration time);

 private:
  void End();

  const int exit_code_;
  const std::function<void()> flush_;
  absl::Mutex mutex_;
  std::list<SteadyAlarm> alarms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_FORCED_END_H_
