// SPDX-License-Identifier: Apache-2.0
// Thread: like std::thread, except that a process that may start no more
// threads gets an error instead of an exception. Movable; used by one thread.
#ifndef DCP_BASE_THREAD_H_
#define DCP_BASE_THREAD_H_

#include <pthread.h>

#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace dcp {

class Thread {
 public:
  // Calls `body` in a new thread. ResourceExhausted, naming the limits that may
  // be the reason, if the system allows none.
  static absl::StatusOr<Thread> Start(absl::AnyInvocable<void() &&> body);

  Thread(Thread&& other) noexcept
      : handle_(std::exchange(other.handle_, std::nullopt)) {}
  Thread& operator=(Thread&& other) noexcept {
    Join();
    handle_ = std::exchange(other.handle_, std::nullopt);
    return *this;
  }
  ~Thread() { Join(); }

  // Waits for the thread's end. Does nothing if it has been joined.
  void Join();

  // Gives the processor to threads of the usual priority first, whenever both
  // need it. For the calling thread, until it ends.
  static void LowerPriority();

  // Valid until it is joined.
  pthread_t native_handle() const { return *handle_; }

 private:
  explicit Thread(pthread_t handle) : handle_(handle) {}

  std::optional<pthread_t> handle_;
};

}  // namespace dcp

#endif  // DCP_BASE_THREAD_H_
