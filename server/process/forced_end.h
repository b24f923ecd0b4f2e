// SPDX-License-Identifier: Apache-2.0
// ForcedEnd: ends the process although a file system keeps some threads in the
// kernel, where nothing can end them. After a given time it logs this and exits
// without destroying anything. As after a kill, unfinished jobs continue at the
// next start. Thread-safe.
#ifndef SERVER_PROCESS_FORCED_END_H_
#define SERVER_PROCESS_FORCED_END_H_

#include <functional>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/process/steady_alarm.h"

namespace dcp::server {

class ForcedEnd {
 public:
  // `exit_code` is the process's; `flush` is called last, to write the log.
  ForcedEnd(int exit_code, std::function<void()> flush)
      : exit_code_(exit_code), flush_(std::move(flush)) {}
  ForcedEnd(const ForcedEnd&) = delete;
  ForcedEnd& operator=(const ForcedEnd&) = delete;

  // Ends the process after `time`, unless this is destroyed before. If called
  // several times, the earliest end counts. If the system starts no thread, it
  // only logs that.
  void Within(absl::Duration time);

 private:
  void End();

  const int exit_code_;
  const std::function<void()> flush_;
  absl::Mutex mutex_;
  std::list<SteadyAlarm> alarms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_FORCED_END_H_
