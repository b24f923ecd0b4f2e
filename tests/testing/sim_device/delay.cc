// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/delay.h"

#include <thread>

namespace sim {

void Delay(std::chrono::microseconds time) {
  if (time.count() > 0) std::this_thread::sleep_for(time);
}

}  // namespace sim
