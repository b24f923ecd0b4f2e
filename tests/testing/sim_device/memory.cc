// SPDX-License-Identifier: Apache-2.0
// The simulation's memory: the behaviour of CUDA's caching allocators, and the
// races that they make possible.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "c10/util/Exception.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"
#include "tests/testing/sim_device/stream.h"

namespace sim {
namespace {

constexpr size_t kMinPinnedBytes = 512;

// A NaN in every floating-point dtype.
constexpr int kPoison = 0xff;

// Device memory as the owner knows it.
struct Owner {
  c10::DeviceIndex device;
  uintptr_t begin;
};

uintptr_t Map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, memory != MAP_FAILED,
                   "the simulated device: this machine has no ", bytes,
                   " bytes more");
  return reinterpret_cast<uintptr_t>(memory);
}

void Poison(uintptr_t begin, size_t size) {
  if (!options().poison) return;
  std::memset(reinterpret_cast<void*>(begin), kPoison, size);
}

Access WriteTo(const Block& block) {
  return {.extent = Extent(block.begin, block.end()), .writes = true};
}

}  // namespace

Simulation::Held Simulation::HoldFor(uintptr_t begin,
                                     const std::set<Stream*>& streams) {
  Held held{.begin = begin, .uses = {}, .clock = {}};
  for (Stream* stream : streams) {
    held.uses.emplace_back(stream, stream->queue.num_issued());
    held.clock.Join(stream->clock);
  }
  return held;
}

std::vector<Simulation::Held> Simulation::TakeFinished(
    std::vector<Held>& waiting) {
  std::vector<Held> finished;
  std::erase_if(waiting, [&](Held& held) {
    const bool done = std::all_of(
        held.uses.begin(), held.uses.end(),
        [](const Use& use) { return use.first->queue.IsDone(use.second); });
    // The allocator has seen these uses' events.
    if (done) {
      host_.Join(held.clock);
      finished.push_back(std::move(held));
    }
    return done;
  });
  return finished;
}

// --- Device memory ---------------------------------------------------------

// Whether the limit allows no segment for the allocation.
bool Simulation::NeedsMore(DeviceMemory& memory, const Stream& stream,
                           size_t bytes) {
  const int64_t limit = options().memory_mb << 20;
  return limit > 0 && !memory.pool.HasFree(stream.actor, bytes) &&
         memory.pool.stats().reserved +
                 static_cast<int64_t>(BlockPool::SegmentBytes(bytes)) >
             limit;
}

Block Simulation::TakeBlock(DeviceMemory& memory, const Stream& stream,
                            size_t bytes) {
  if (memory.pool.HasFree(stream.actor, bytes)) {
    return memory.pool.TakeFree(stream.actor, bytes);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, !NeedsMore(memory, stream, bytes),
                   "the simulated device ", stream.id.device(),
                   " is out of memory: ", bytes, " bytes more, when ",
                   memory.pool.stats().allocated, " are allocated and ",
                   memory.pool.stats().reserved,
                   " reserved (SIM_MEMORY_MB=", options().memory_mb, ")");
  const size_t segment = BlockPool::SegmentBytes(bytes);
  const uintptr_t begin = Map(segment);
  races_.AddSegment(begin, begin + segment);
  return memory.pool.TakeFrom(begin, stream.actor, bytes);
}

// Memory that was freed while another stream used it may go to the next
// allocation, although this time another block did.
void Simulation::NoteReuse(DeviceMemory& memory, const Stream& stream,
                           BlockPool::Key key, const Block& block,
                           size_t bytes) {
  VectorClock known = stream.clock;
  known.Join(host_);
  std::erase_if(memory.freed_in_use[key], [&](const Block& freed) {
    // The first use of the block itself is checked in any case.
    if (freed.begin < block.end() && block.begin < freed.end()) return true;
    const bool fits = BlockPool::RoundUp(bytes) <= freed.size;
    return !races_.IsInUse(freed.begin, freed.end(), stream.actor, known,
                           /*reports=*/fits) ||
           fits;
  });
}

c10::DataPtr Simulation::Allocate(c10::Stream id, size_t bytes) {
  if (bytes == 0) return {nullptr, id.device()};
  std::unique_lock<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  DeviceMemory& memory = memory_[id.device_index()];
  for (const Held& held : TakeFinished(memory.waiting)) {
    GiveBack(memory, held.begin);
  }
  if (NeedsMore(memory, stream, bytes)) {
    lock.unlock();
    EmptyCache();
    lock.lock();
  }
  const Block block = TakeBlock(memory, stream, bytes);
  NoteReuse(memory, stream, BlockPool::KeyFor(stream.actor, bytes), block,
            bytes);
  races_.OnAllocate(block.begin, block.begin + bytes);
  IssueHere(stream, "the first use of an allocation", {WriteTo(block)},
            [block] { Poison(block.begin, block.size); });
  return {reinterpret_cast<void*>(block.begin),
          new Owner{.device = id.device_index(), .begin = block.begin},
          &FreeDevice, id.device()};
}

void Simulation::GiveBack(DeviceMemory& memory, uintptr_t begin) {
  const Block block = memory.pool.At(begin);
  const BlockPool::Key key = memory.pool.Free(begin);
  VectorClock known = actors_[key.stream]->clock;
  known.Join(host_);
  if (races_.IsInUse(block.begin, block.end(), key.stream, known,
                     /*reports=*/false)) {
    memory.freed_in_use[key].push_back(block);
  }
}

void Simulation::FreeDevice(void* context) {
  const auto owner =
      std::unique_ptr<const Owner>(static_cast<const Owner*>(context));
  Simulation& simulation = Get();
  const std::lock_guard<std::mutex> lock(simulation.mutex_);
  DeviceMemory& memory = simulation.memory_[owner->device];
  const auto recorded = memory.recorded.find(owner->begin);
  if (recorded == memory.recorded.end()) {
    simulation.GiveBack(memory, owner->begin);
    return;
  }
  memory.waiting.push_back(simulation.HoldFor(owner->begin, recorded->second));
  memory.recorded.erase(recorded);
}

void Simulation::RecordUse(const void* data, c10::Stream id) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  if (const auto after = pinned_.sizes.upper_bound(address);
      after != pinned_.sizes.begin()) {
    const auto& [begin, size] = *std::prev(after);
    if (address < begin + size) {
      pinned_.used_by[begin].insert(&stream);
      return;
    }
  }
  DeviceMemory& memory = memory_[id.device_index()];
  const std::optional<uintptr_t> begin = memory.pool.BlockAt(address);
  if (begin.has_value() && memory.pool.KeyAt(*begin).stream != stream.actor) {
    memory.recorded[*begin].insert(&stream);
  }
}

void Simulation::EmptyCache() {
  std::vector<StreamQueue*> queues;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, stream] : streams_) queues.push_back(&stream->queue);
  }
  for (StreamQueue* queue : queues) queue->WaitUntilDone(queue->num_issued());
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [device, memory] : memory_) {
    for (const auto& [begin, end] : memory.pool.TakeEmptySegments()) {
      races_.RemoveSegment(begin);
      munmap(reinterpret_cast<void*>(begin), end - begin);
    }
  }
}

MemoryStats Simulation::memory_stats(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_[device].pool.stats();
}

void Simulation::ResetPeak(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_[device].pool.ResetPeak();
}

// --- Pinned memory ---------------------------------------------------------

// CUDA's allocator for pinned memory rounds up to powers of two, and gives
// memory out again when the copies that use it are done.
c10::DataPtr Simulation::AllocatePinned(size_t bytes) {
  if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Held& held : TakeFinished(pinned_.waiting)) {
    pinned_.free[pinned_.sizes[held.begin]].push_back(held.begin);
  }
  const size_t size = std::bit_ceil(std::max(bytes, kMinPinnedBytes));
  std::vector<uintptr_t>& free = pinned_.free[size];
  uintptr_t begin = 0;
  if (free.empty()) {
    begin = Map(size);
    pinned_.sizes[begin] = size;
    races_.AddSegment(begin, begin + size);
  } else {
    begin = free.back();
    free.pop_back();
  }
  races_.OnAllocate(begin, begin + bytes);
  const Work use{.name = "the first use of pinned memory",
                 .stack = "",
                 .actor = RaceDetector::kHost,
                 .tick = host_.Tick(RaceDetector::kHost)};
  races_.Check(WriteTo({.begin = begin, .size = size}), use, host_, host_);
  Poison(begin, size);
  void* const memory = reinterpret_cast<void*>(begin);
  return {memory, memory, &FreePinned, c10::Device(c10::kCPU)};
}

void Simulation::FreePinned(void* data) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  Simulation& simulation = Get();
  const std::lock_guard<std::mutex> lock(simulation.mutex_);
  PinnedMemory& pinned = simulation.pinned_;
  const auto used = pinned.used_by.find(begin);
  if (used == pinned.used_by.end()) {
    pinned.free[pinned.sizes[begin]].push_back(begin);
    return;
  }
  pinned.waiting.push_back(simulation.HoldFor(begin, used->second));
  pinned.used_by.erase(used);
}

bool Simulation::IsPinned(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto after = pinned_.sizes.upper_bound(address);
  if (after == pinned_.sizes.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address < begin + size;
}

}  // namespace sim
