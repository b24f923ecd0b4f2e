// SPDX-License-Identifier: Apache-2.0

#include "server/process/steady_alarm.h"

#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"

namespace dcp::server {
namespace {

// Whether `event` is signaled before `end`. poll uses the kernel's steady
// clock.
bool ComesBefore(int event, absl::Duration end) {
  while (true) {
    const absl::Duration left = std::clamp(
        end - SteadyNow(), absl::ZeroDuration(), absl::Milliseconds(INT_MAX));
    pollfd waiting = {.fd = event, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1,
                           static_cast<int>(absl::ToInt64Milliseconds(
                               absl::Ceil(left, absl::Milliseconds(1)))));
    if (ready > 0) return true;
    if (ready == 0) return false;
    DCP_CHECK(errno == EINTR, std::strerror(errno));
  }
}

}  // namespace

SteadyAlarm::SteadyAlarm() : cancel_event_(eventfd(0, EFD_CLOEXEC)) {
  DCP_CHECK(cancel_event_ >= 0, std::strerror(errno));
}

absl::Status SteadyAlarm::Start(absl::Duration after,
                                std::function<void()> ring) {
  DCP_ASSIGN_OR_RETURN(
      thread_, Thread::Start([event = cancel_event_, end = SteadyNow() + after,
                              ring = std::move(ring)] {
        if (!ComesBefore(event, end)) ring();
      }));
  return absl::OkStatus();
}

SteadyAlarm::~SteadyAlarm() {
  DCP_CHECK(eventfd_write(cancel_event_, 1) == 0);
  thread_.reset();  // joins
  close(cancel_event_);
}

}  // namespace dcp::server
