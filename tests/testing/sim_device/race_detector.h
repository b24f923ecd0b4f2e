// SPDX-License-Identifier: Apache-2.0
// RaceDetector: finds two accesses to the same bytes without an order between
// them, if at least one writes. It finds them even if the numbers were right
// this time. It keeps the last accesses to all memory with clocks, also to
// memory that was freed since. Guarded by the simulation's mutex.
#ifndef TESTS_TESTING_SIM_DEVICE_RACE_DETECTOR_H_
#define TESTS_TESTING_SIM_DEVICE_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/sim_device/extent.h"
#include "tests/testing/sim_device/vector_clock.h"

namespace sim {

// Bytes that an operator reads or writes.
struct Access {
  Extent extent;
  bool writes = false;
};

// A piece of work.
struct Work {
  std::string name;   // "aten::add"
  std::string stack;  // where it was issued; empty unless wanted
  size_t actor = 0;
  uint64_t tick = 0;  // the actor's
};

class RaceDetector {
 public:
  // The host is actor 0.
  static constexpr size_t kHost = 0;

  // Adds an actor; returns its number.
  size_t AddActor(std::string name);
  void RenameActor(size_t actor, std::string name);

  // A memory segment [begin, end), which contains allocations, exists from now
  // on; does not exist any more.
  void AddSegment(uintptr_t begin, uintptr_t end);
  void RemoveSegment(uintptr_t begin);
  // Memory [begin, end) is one allocation from now on.
  void OnAllocate(uintptr_t begin, uintptr_t end);

  // Checks an access by `work`, and remembers it. `known` is the clock before
  // `work`; every later piece of work knows `host` too.
  void Check(const Access& access, const Work& work, const VectorClock& known,
             const VectorClock& host);
  // Whether memory [begin, end) has a use that is not ordered before work by
  // `actor` with the clock `known`. If `reports`, that is a race: the memory
  // was freed, and `actor` may be given it now.
  bool IsInUse(uintptr_t begin, uintptr_t end, size_t actor,
               const VectorClock& known, bool reports);

  // Races found since the last call: "aten::copy_ on stream 'copy-in' writes
  // ...".
  std::vector<std::string> TakeRaces();

 private:
  struct Record {
    Access access;
    Work work;
    uint64_t allocation;  // the allocation at the time of the access
  };
  struct Allocation {
    uintptr_t end;
    uint64_t number;
  };
  struct Segment {
    uintptr_t end;
    std::map<uintptr_t, Allocation> allocations;  // by first byte
    std::vector<Record> records;
  };

  static bool IsOrdered(const Record& record, size_t actor,
                        const VectorClock& known) {
    return record.work.actor == actor ||
           known.at(record.work.actor) >= record.work.tick;
  }
  // Null outside of every segment.
  Segment* SegmentAt(uintptr_t address);
  std::string OnActor(const Work& work) const;
  void Report(const Segment& segment, const Record& old, const Access& access,
              const Work& work);
  void Add(const std::string& key, std::string race);

  std::vector<std::string> actors_{"the host"};
  std::map<uintptr_t, Segment> segments_;  // by first byte
  uint64_t num_allocations_ = 0;
  std::vector<std::string> races_;
  std::set<std::string> seen_;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_RACE_DETECTOR_H_
