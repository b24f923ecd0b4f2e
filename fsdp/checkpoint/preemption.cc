// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/preemption.h"

#include <signal.h>

#include <atomic>

#include "dcp/base/check.h"

namespace fsdp {
namespace {

// The only thing that the signal handler touches. Relaxed: it says nothing
// about other memory.
std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free);

int num_notices = 0;
struct sigaction previous;

void OnSignal(int) { signal_came.store(true, std::memory_order_relaxed); }

}  // namespace

PreemptionNotice::PreemptionNotice() {
  if (num_notices++ > 0) return;
  signal_came = false;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  DCP_CHECK(sigaction(SIGTERM, &action, &previous) == 0);
}

PreemptionNotice::~PreemptionNotice() {
  if (--num_notices > 0) return;
  DCP_CHECK(sigaction(SIGTERM, &previous, nullptr) == 0);
}

bool PreemptionNotice::came() const {
  return signal_came.load(std::memory_order_relaxed);
}

}  // namespace fsdp
