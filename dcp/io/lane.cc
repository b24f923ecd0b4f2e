// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/lane.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/base/thread.h"
#include "dcp/io/posix_error.h"

namespace dcp {
namespace {

// For each lane: as many reads as writes.
constexpr uint32_t kInFlightMax = 2 * kQueueDepth;

// Shared by all lanes: the first error, which stops all lanes.
class Outcome {
 public:
  explicit Outcome(std::stop_token outer)
      : forward_(std::move(outer), [this] { source_.request_stop(); }) {}

  std::stop_token token() const { return source_.get_token(); }

  void Report(const absl::Status& status) {
    if (status.ok()) return;
    {
      absl::MutexLock lock(&mutex_);
      if (first_error_.ok()) first_error_ = status;
    }
    source_.request_stop();
  }

  absl::Status first_error() {
    absl::MutexLock lock(&mutex_);
    return first_error_;
  }

 private:
  absl::Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  std::stop_source source_;
  // The last member, so that it is destroyed before the members that it uses.
  std::stop_callback<std::function<void()>> forward_;
};

// Whether the system provides this process with this much memory. A pool that
// cannot be allocated would end the process. Another thread may take the memory
// between this check and the allocation; then the program's new-handler
// decides.
absl::Status CheckAvailable(uint64_t num_bytes) {
  void* const probe = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) {
    return WithOptions(
        PosixError(errno,
                   absl::StrCat(
                       "the system does not provide the ", num_bytes,
                       " bytes of memory that a lane needs for blocks; lower ",
                       ToText({"memory_bytes"}),
                       ", or raise the limit of the process")),
        {"memory_bytes"});
  }
  munmap(probe, num_bytes);
  return absl::OkStatus();
}

absl::StatusOr<KeptLanes::Kept> NewLane(FileSystem& fs, uint64_t num_blocks,
                                        uint64_t block_bytes) {
  DCP_RETURN_IF_ERROR(CheckAvailable(num_blocks * block_bytes));
  KeptLanes::Kept made;
  made.pool = std::make_unique<BlockPool>(num_blocks, block_bytes);
  DCP_ASSIGN_OR_RETURN(made.queue,
                       fs.NewQueue(kInFlightMax, made.pool->memory()));
  return made;
}

absl::Status RunOwnLane(
    FileSystem& fs, uint32_t index, uint64_t num_blocks,
    const LaneMemory& memory, std::stop_token stop,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work) {
  KeptLanes::Kept own;
  if (memory.kept != nullptr) own = memory.kept->Take(index);
  if (own.pool == nullptr || own.pool->num_blocks() != num_blocks ||
      own.pool->block_bytes() != memory.block_bytes) {
    own = {};  // before the next takes its memory
    DCP_ASSIGN_OR_RETURN(own, NewLane(fs, num_blocks, memory.block_bytes));
  }
  Lane lane{.index = index, .pool = *own.pool, .queue = std::move(own.queue)};
  const absl::Status status = work(lane, std::move(stop));
  if (status.ok() && memory.kept != nullptr) {
    own.queue = std::move(lane.queue);
    memory.kept->Keep(index, std::move(own));
  }
  return status;
}

}  // namespace

void KeptLanes::Reserve(uint32_t num_lanes) {
  if (lanes_.size() < num_lanes) lanes_.resize(num_lanes);
}

uint64_t NumLaneBlocks(uint32_t num_lanes, const LaneMemory& memory) {
  return std::min<uint64_t>(
      memory.memory_bytes / num_lanes / memory.block_bytes,
      memory.more_blocks + kInFlightMax);
}

absl::Status RunLanes(
    FileSystem& fs, uint32_t num_lanes, const LaneMemory& memory,
    std::stop_token stop,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work) {
  if (num_lanes == 0) return absl::InvalidArgumentError("0 lanes");
  const uint64_t num_blocks = NumLaneBlocks(num_lanes, memory);
  if (num_blocks < kMinBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(memory.memory_bytes, " bytes of memory for ", num_lanes,
                     " lanes: each needs ", kMinBlocks * memory.block_bytes));
  }
  if (memory.kept != nullptr) memory.kept->Reserve(num_lanes);
  Outcome outcome(std::move(stop));
  const auto run = [&](uint32_t index) {
    outcome.Report(
        RunOwnLane(fs, index, num_blocks, memory, outcome.token(), work));
  };
  {
    std::vector<Thread> threads;
    absl::Status started;
    for (uint32_t i = 1; i < num_lanes && started.ok(); ++i) {
      absl::StatusOr<Thread> thread = Thread::Start([&run, i] { run(i); });
      started = thread.status();
      if (started.ok()) threads.push_back(*std::move(thread));
    }
    // Each lane has a part of the work that no other lane does.
    outcome.Report(started);
    if (started.ok()) run(0);
  }  // joins
  return outcome.first_error();
}

absl::Status RunLane(
    FileSystem& fs, BlockPool& pool, std::stop_token stop,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work) {
  if (pool.num_free() < kMinBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pool with ", pool.num_free(),
                     " free blocks: ", kMinBlocks, " are needed"));
  }
  Lane lane{.index = 0, .pool = pool, .queue = nullptr};
  DCP_ASSIGN_OR_RETURN(lane.queue, fs.NewQueue(kInFlightMax, {}));
  return work(lane, std::move(stop));
}

}  // namespace dcp
