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

// The time since a past moment, which is the same for all threads in the
// process. Any thread.
absl::Duration SteadyNow();

// A condition variable like absl::CondVar, with timed waits that follow
// SteadyNow. absl::CondVar follows the system's clock, so a wait lasts an hour
// more if someone sets that clock back by an hour. Thread-safe.
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
  pthread_mutex_t mutex_;  // held from a waiter's check until it waits
  pthread_cond_t condition_;
};

}  // namespace dcp

#endif  // DCP_BASE_STEADY_TIME_H_
