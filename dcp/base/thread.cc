// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp {
namespace {

using Body = absl::AnyInvocable<void() &&>;

void* RunBody(void* argument) {
  const std::unique_ptr<Body> body(static_cast<Body*>(argument));
  std::move (*body)();
  return nullptr;
}

}  // namespace

absl::StatusOr<Thread> Thread::Start(Body body) {
  auto owned = std::make_unique<Body>(std::move(body));
  pthread_t handle;
  const int error = pthread_create(&handle, nullptr, RunBody, owned.get());
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system starts no more threads for this process: ",
        strerrordesc_np(error),
        "; raise ulimit -u, ulimit -v or the limits of the container"));
  }
  owned.release();  // the thread has it
  return Thread(handle);
}

void Thread::LowerPriority() {
  // A tenth of the usual share. Linux has a nice value for each thread.
  constexpr int kNice = 10;
  // A system that allows no change still runs the thread.
  std::ignore = setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

void Thread::Join() {
  if (!handle_.has_value()) return;
  const int error = pthread_join(*handle_, nullptr);
  DCP_CHECK(error == 0, "pthread_join: ", error);
  handle_.reset();
}

}  // namespace dcp
