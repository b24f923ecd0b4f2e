// SPDX-License-Identifier: Apache-2.0
// Time for deadlines, waits and elapsed times, which setting the system's clock
// does not affect. absl::Now is for times that people or other machines read;
// tests/style/tidy_test.py lists the files that may call it.
#ifndef DCP_BASE_STEADY_TIME_H_
#define DCP_BASE_STEADY_TIME_H_

#include <pthread.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace dcp {

// Since a moment in the past, which is the same for all threads of the process.
// Any thread.
absl::Duration SteadyNow();

// A condition variable like absl::CondVar, whose waits with an end follow
// SteadyNow: those of absl::CondVar follow the system's clock, so they last an
// hour more if somebody sets that back by an hour. Thread-safe.
class SteadyCondVar {
 public:
  SteadyCondVar();
  ~SteadyCondVar();
  SteadyCondVar(const SteadyCondVar&) = delete;
  SteadyCondVar& operator=(const SteadyCondVar&) = delete;

  // Waits for a signal; may return without one.
  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The same, at most until SteadyNow is `end`. Returns whether it is.
  bool WaitUntil(absl::Mutex* mutex, absl::Duration end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Signal();
  void SignalAll();

 private:
  pthread_mutex_t mutex_;  // held between the look of a waiter and its wait
  pthread_cond_t condition_;
};

}  // namespace dcp

#endif  // DCP_BASE_STEADY_TIME_H_
