// SPDX-License-Identifier: Apache-2.0
// Simulation: the process's simulated devices with their streams, events and
// memory, and the known order of all work. One mutex guards everything except
// the queues; the host's own parallelism is not tested. Any thread.
//
// Every stream has a vector clock of the work that comes before its next piece:
// earlier work on the stream, work that it waits for through events, and work
// that the host has waited for by the time of issue. All host threads are one
// actor.
#ifndef TESTS_TESTING_SIM_DEVICE_SIMULATION_H_
#define TESTS_TESTING_SIM_DEVICE_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c10/core/Allocator.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "tests/testing/sim_device/block_pool.h"
#include "tests/testing/sim_device/race_detector.h"
#include "tests/testing/sim_device/stream_queue.h"

namespace sim {

inline constexpr c10::DeviceType kType = c10::DeviceType::CUDA;

class Simulation {
 public:
  struct Stream;
  struct Event {
    Stream* stream = nullptr;  // null: never recorded
    uint64_t position = 0;     // the marker's, in the stream's queue
    VectorClock clock;
    // Written by the stream when it reaches the marker.
    struct Reached {
      double time_us = 0;  // on the real clock, or the simulated one
      std::string after;   // the last piece of work before it
    };
    std::shared_ptr<Reached> reached;
  };

  static Simulation& Get();

  // Issues `work` on the stream. It runs without the mutex, on the stream's
  // thread; `accesses` lists the bytes that it reads and writes. With a
  // simulated clock it does not run, and takes `micros`.
  void Issue(c10::Stream stream, const std::string& name,
             const std::vector<Access>& accesses, std::function<void()> work,
             double micros = 0);
  // With a simulated clock: issues work that runs, from the stream's time in
  // microseconds on. It returns when all participating ranks have begun, and is
  // done then.
  struct Period {
    double begin_us, end_us;
  };
  void IssueTimed(c10::Stream stream, const std::string& name,
                  const std::vector<Access>& accesses,
                  std::function<Period(double now_us)> run);
  // The host waits for all work issued on the stream. `reason` is counted.
  void Synchronize(c10::Stream stream, const std::string& reason);
  // The same for the simulation's own needs: not counted, and nothing is known
  // to be ordered by it.
  void Finish(c10::Stream stream);

  void Record(Event& event, c10::Stream stream);
  void MakeWait(c10::Stream waiter, const Event& event);
  bool Query(const Event& event);
  void Synchronize(const Event& event);
  bool Query(c10::Stream stream);

  std::vector<c10::Stream> StreamsOn(c10::DeviceIndex device);
  c10::Stream StreamFromPool(c10::DeviceIndex device, bool high_priority);
  void Name(c10::Stream stream, const std::string& name);

  // Memory for work on the stream. Throws c10::OutOfMemoryError. The memory
  // belongs to `stream`'s device.
  c10::DataPtr Allocate(c10::Stream stream, size_t bytes);
  // recordStream: after the memory is freed, it is not used again before the
  // work issued on the stream by then is done.
  void RecordUse(const void* data, c10::Stream stream);
  c10::DataPtr AllocatePinned(size_t bytes);
  bool IsPinned(const void* data);
  // Waits for every stream, not counted, and gives segments without a block in
  // use back, as cudaFree does.
  void EmptyCache();

  MemoryStats memory_stats(c10::DeviceIndex device);
  void ResetPeak(c10::DeviceIndex device);

  std::vector<std::string> TakeRaces();
  std::map<std::string, int64_t> TakeHostWaits();
  std::map<std::string, int64_t> TakeEagerOperators();
  void CountHostWait(const std::string& reason);
  void CountEager(const std::string& op);
  // JSON for the simulated clock: the time on the device's default stream, its
  // waits by cause, and the peak of memory.
  std::string DescribeTime(c10::DeviceIndex device);
  // The current work on every stream in the process, a line each.
  std::string Describe();

 private:
  // and a position in the stream's queue
  using Use = std::pair<Stream*, uint64_t>;
  // Memory that other streams still use, or pinned memory.
  struct Held {
    uintptr_t begin = 0;
    std::vector<Use> uses;
    VectorClock clock;  // the uses' clock
  };
  struct DeviceMemory {
    BlockPool pool;
    // Freed memory that another stream was still using, by pool.
    std::map<BlockPool::Key, std::vector<Block>> freed_in_use;
    std::map<uintptr_t, std::set<Stream*>> recorded;
    std::vector<Held> waiting;  // freed, and recorded on other streams
  };
  struct PinnedMemory {
    std::map<uintptr_t, size_t> sizes;
    std::map<size_t, std::vector<uintptr_t>> free;
    std::map<uintptr_t, std::set<Stream*>> used_by;  // since it was allocated
    std::vector<Held> waiting;
  };

  Simulation() = default;

  static void FreeDevice(void* block);
  static void FreePinned(void* data);
  void Watch();

  // The rest requires the mutex.
  Stream& At(c10::Stream stream);
  uint64_t IssueHere(Stream& stream, const std::string& name,
                     const std::vector<Access>& accesses,
                     std::function<void()> work);
  std::function<void()> Timed(Stream& stream, const std::string& name,
                              double micros);
  void HostWaitedFor(const Stream& stream, const VectorClock& clock,
                     const std::string& reason);
  Held HoldFor(uintptr_t begin, const std::set<Stream*>& streams);
  // Removes from `waiting`, and returns, the memory that is no longer used.
  std::vector<Held> TakeFinished(std::vector<Held>& waiting);
  bool NeedsMore(DeviceMemory& memory, const Stream& stream, size_t bytes);
  Block TakeBlock(DeviceMemory& memory, const Stream& stream, size_t bytes);
  void GiveBack(DeviceMemory& memory, uintptr_t begin);
  void NoteReuse(DeviceMemory& memory, const Stream& stream, BlockPool::Key key,
                 const Block& block, size_t bytes);

  std::mutex mutex_;
  RaceDetector races_;
  VectorClock host_;
  double host_us_ = 0;  // on the simulated clock
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<Stream>>
      streams_;
  std::vector<Stream*> actors_{nullptr};  // by number; the host is 0
  uint64_t next_in_pool_[2] = {0, 0};
  std::map<c10::DeviceIndex, DeviceMemory> memory_;
  PinnedMemory pinned_;
  std::map<std::string, int64_t> host_waits_, eager_operators_;
  bool is_watched_ = false;
};

// This thread's device and streams, as cudaSetDevice and CUDAStreamGuard set
// them.
c10::DeviceIndex CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex device);
c10::Stream CurrentStream(c10::DeviceIndex device);
void SetCurrentStream(c10::Stream stream);
c10::Stream DefaultStream(c10::DeviceIndex device);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_SIMULATION_H_
