// SPDX-License-Identifier: Apache-2.0
// A simulated stream, for simulation.cc and memory.cc.
#ifndef TESTS_TESTING_SIM_DEVICE_STREAM_H_
#define TESTS_TESTING_SIM_DEVICE_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>

#include "tests/testing/sim_device/simulation.h"
#include "tests/testing/sim_device/stream_time.h"

namespace sim {

struct Simulation::Stream {
  Stream(c10::Stream stream, size_t its_actor, std::string its_name,
         uint64_t seed)
      : id(stream), actor(its_actor), name(std::move(its_name)), queue(seed) {}

  const c10::Stream id;
  const size_t actor;
  std::string name;
  VectorClock clock;  // the work that comes before the next piece
  StreamTime time;
  StreamQueue queue;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_STREAM_H_
