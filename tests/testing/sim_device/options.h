// SPDX-License-Identifier: Apache-2.0
// The simulated device's options: environment variables, which are read once,
// or fields that a test sets before it uses the device.
#ifndef TESTS_TESTING_SIM_DEVICE_OPTIONS_H_
#define TESTS_TESTING_SIM_DEVICE_OPTIONS_H_

#include <cstdint>

namespace sim {

struct Options {
  // TESSERA_SIM_DEVICE=1: the process has simulated devices. Without it, a
  // program that links them is as one that does not. Read before main.
  bool enabled = false;
  // SIM_DEVICES: devices that the process sees.
  int64_t num_devices = 8;
  // SIM_DELAY_US: each piece of work on a stream waits up to so long, at
  // random.
  int64_t max_delay_us = 0;
  // SIM_COLLECTIVE_US: each collective takes at least so long.
  int64_t collective_us = 0;
  // SIM_SEED: the seed for the delays.
  uint64_t seed = 1;
  // SIM_POISON=0: memory is not filled with NaN before it is used again.
  bool poison = true;
  // SIM_MEMORY_MB: each device's memory; beyond it an allocation throws
  // c10::OutOfMemoryError. 0: no limit.
  int64_t memory_mb = 0;
  // SIM_STACKS=1: a race says where both operators were issued.
  bool stacks = false;
  // SIM_PRINT=1: prints each race when it is found.
  bool print = false;
  // SIM_REPORT=1: prints races, host waits and memory when the process ends.
  bool report = false;
  // SIM_CLOCK=1: nothing is computed. Work takes the time from cost_model.h on
  // a simulated clock, and all values are undefined.
  bool clock = false;
  // SIM_MACHINE: how many ranks are on one machine, for the clock.
  int64_t ranks_per_machine = 8;
  // SIM_WATCHDOG_S: when a piece of work takes so long, the process prints the
  // work that each stream waits for, and ends. 0: never.
  int64_t watchdog_s = 60;
};

// This process's options. Not synchronised: a test sets them while no stream
// has work.
Options& options();

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_OPTIONS_H_
