// SPDX-License-Identifier: Apache-2.0
// VectorClock: how much work by each actor is known to have happened. Actors
// are streams, and the host, and are numbered from 0. Not thread-safe.
//
// Source: Mattern, "Virtual Time and Global States of Distributed Systems",
// 1989.
#ifndef TESTS_TESTING_SIM_DEVICE_VECTOR_CLOCK_H_
#define TESTS_TESTING_SIM_DEVICE_VECTOR_CLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sim {

class VectorClock {
 public:
  uint64_t at(size_t actor) const {
    return actor < ticks_.size() ? ticks_[actor] : 0;
  }
  // Adds the knowledge of `other`.
  void Join(const VectorClock& other) {
    if (ticks_.size() < other.ticks_.size()) {
      ticks_.resize(other.ticks_.size());
    }
    for (size_t i = 0; i < other.ticks_.size(); ++i) {
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
    }
  }
  // The actor does one more piece of work; returns its number.
  uint64_t Tick(size_t actor) {
    if (ticks_.size() <= actor) ticks_.resize(actor + 1);
    return ++ticks_[actor];
  }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_VECTOR_CLOCK_H_
