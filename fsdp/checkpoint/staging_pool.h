// SPDX-License-Identifier: Apache-2.0
// StagingPool: the memory into which an AsyncSaver copies the state, taken once
// and kept. One thread at a time.
#ifndef FSDP_CHECKPOINT_STAGING_POOL_H_
#define FSDP_CHECKPOINT_STAGING_POOL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/thread.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"

namespace fsdp {

class StagingPool {
 public:
  // `fixed_bytes` is the pool's size, or 0: as large as the first state.
  StagingPool(dcp::FileSystem& fs, uint64_t fixed_bytes)
      : fs_(fs), fixed_bytes_(fixed_bytes) {}
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;
  ~StagingPool() { StopPreparing(); }

  // Takes the memory for a state of `state_bytes` that will be saved to `path`,
  // and touches it, on a thread with the lowest priority; returns at once.
  // After the first Get, and without such a thread, it does nothing. Get
  // returns any error.
  void Prepare(absl::string_view path, uint64_t state_bytes);
  // Soon stops touching memory: a save is about to copy into it, which touches
  // the rest.
  void StopPreparing() { stop_.request_stop(); }
  // The pool, with all blocks free. ResourceExhausted if the system does not
  // provide the memory.
  absl::StatusOr<dcp::BlockPool*> Get(absl::string_view path,
                                      uint64_t state_bytes);

 private:
  absl::Status Take(absl::string_view path, uint64_t state_bytes);

  dcp::FileSystem& fs_;
  const uint64_t fixed_bytes_;
  std::unique_ptr<dcp::BlockPool> pool_;
  bool used_ = false;  // by a save
  // While the preparer runs, nothing else uses pool_.
  std::stop_source stop_;
  std::optional<dcp::Thread> preparer_;
};

// Lowers the calling thread's priority for good: it gets a processor that
// training threads leave idle.
void YieldToTraining();

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STAGING_POOL_H_
