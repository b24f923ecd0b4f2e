// SPDX-License-Identifier: Apache-2.0
// CallThreads: threads that make blocking calls in the order of arrival. Each
// plugin store has one.
#ifndef DCP_IO_PLUGIN_CALL_THREADS_H_
#define DCP_IO_PLUGIN_CALL_THREADS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/thread.h"

namespace dcp {

class CallThreads {
 public:
  using Call = absl::AnyInvocable<void() &&>;

  // Fewer threads, or no thread, if the system starts no more: Add then makes
  // the calls.
  explicit CallThreads(uint32_t num_threads);
  // Makes all calls that have come.
  ~CallThreads();
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // Any thread, including one of these.
  void Add(Call call);

 private:
  void Run();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  // Bounded by the callers: each call holds a block from their pools.
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // last: they use the others
};

}  // namespace dcp

#endif  // DCP_IO_PLUGIN_CALL_THREADS_H_
