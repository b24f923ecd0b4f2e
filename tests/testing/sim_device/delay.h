// SPDX-License-Identifier: Apache-2.0
// Delay: waits. The simulated device uses it for delays, and the watchdog
// between two checks.
#ifndef TESTS_TESTING_SIM_DEVICE_DELAY_H_
#define TESTS_TESTING_SIM_DEVICE_DELAY_H_

#include <chrono>

namespace sim {

void Delay(std::chrono::microseconds time);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_DELAY_H_
