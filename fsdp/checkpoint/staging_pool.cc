// SPDX-License-Identifier: Apache-2.0
// Allocates staging memory, and touches it in the background.
// Tested by tests/fsdp/checkpoint/async_saver_test.cc.
#include "fsdp/checkpoint/staging_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stop_token>
#include <string>

#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

constexpr int kLowestPriority = 19;
// Touched between two checks of the stop token.
constexpr size_t kStepBytes = size_t{4} << 20;

// Has the kernel provide every page. `memory` begins at one, as pools do.
void Touch(std::span<uint8_t> memory, const std::stop_token& stop) {
  const size_t page_bytes = dcp::PageBytes();
  for (size_t begin = 0; begin < memory.size() && !stop.stop_requested();
       begin += kStepBytes) {
    const size_t end = std::min(begin + kStepBytes, memory.size());
    for (size_t at = begin; at < end; at += page_bytes) {
      *const_cast<volatile uint8_t*>(&memory[at]) = 0;
    }
  }
}

}  // namespace

void YieldToTraining() {
  // Linux has a priority for each thread. Lowering it needs no privilege.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
}

void StagingPool::Prepare(absl::string_view path, uint64_t state_bytes) {
  if (used_) return;
  StopPreparing();
  preparer_.reset();  // joins
  stop_ = std::stop_source();
  absl::StatusOr<dcp::Thread> preparer = dcp::Thread::Start(
      [this, path = std::string(path), state_bytes, stop = stop_.get_token()] {
        YieldToTraining();
        // Get tries again and reports the error.
        if (Take(path, state_bytes).ok()) Touch(pool_->memory(), stop);
      });
  if (preparer.ok()) preparer_ = *std::move(preparer);
}

absl::StatusOr<dcp::BlockPool*> StagingPool::Get(absl::string_view path,
                                                 uint64_t state_bytes) {
  preparer_.reset();  // joins
  DCP_RETURN_IF_ERROR(Take(path, state_bytes));
  used_ = true;
  return pool_.get();
}

absl::Status StagingPool::Take(absl::string_view path, uint64_t state_bytes) {
  DCP_ASSIGN_OR_RETURN(const uint64_t block_bytes,
                       dcp::BlockBytesFor(fs_.TraitsAt(path), state_bytes));
  const uint64_t bytes = fixed_bytes_ != 0 ? fixed_bytes_ : state_bytes;
  const uint64_t num_blocks =
      std::max((bytes + block_bytes - 1) / block_bytes, dcp::kMinBlocks);
  // A save on a disk may be followed by one in an object store, which needs
  // larger blocks. Memory that was prepared for another state may be too small.
  if (pool_ != nullptr && (pool_->block_bytes() < block_bytes ||
                           (!used_ && pool_->num_blocks() < num_blocks))) {
    pool_.reset();
  }
  if (pool_ != nullptr) return absl::OkStatus();
  return dcp::Annotate(CatchTorch([&] {
                         pool_ = std::make_unique<dcp::BlockPool>(
                             num_blocks, block_bytes, StagingMemory());
                       }),
                       num_blocks * block_bytes, " bytes of memory for a save");
}

}  // namespace fsdp
