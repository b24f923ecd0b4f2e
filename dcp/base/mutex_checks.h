// SPDX-License-Identifier: Apache-2.0
// DisableMutexChecks: for the main functions of optimised programs. Debian
// builds Abseil without NDEBUG. Each absl::Mutex therefore records the order of
// locks to detect deadlocks, also in programs that are built with NDEBUG: under
// load this took a tenth of the daemon's time.
#ifndef DCP_BASE_MUTEX_CHECKS_H_
#define DCP_BASE_MUTEX_CHECKS_H_

#include "absl/synchronization/mutex.h"

namespace dcp {

// Does nothing in a program without NDEBUG, where the checks find mistakes.
// To be called before other threads start.
inline void DisableMutexChecks() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace dcp

#endif  // DCP_BASE_MUTEX_CHECKS_H_
