// The implementation of AsyncSaver and SaveHandle. checkpoint_manager uses it
// too, and adds work at both ends of a save.
#ifndef FSDP_CHECKPOINT_ASYNC_SAVER_H_
#define FSDP_CHECKPOINT_ASYNC_SAVER_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/block_pool.h"
#include "fsdp/checkpoint/checkpoint.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/state/held_state.h"

namespace fsdp {

// `file_system`, or the operating system's if it is null.
dcp::FileSystem& FileSystemOr(dcp::FileSystem* file_system);

// One save, shared by the thread that trains and the one that saves.
struct SaveHandle::Impl {
  explicit Impl(std::string to) : path(std::move(to)) {}

  void SetStaged() ABSL_LOCKS_EXCLUDED(mutex);
  void SetDone(absl::Status outcome) ABSL_LOCKS_EXCLUDED(mutex);
  // Returns the outcome, and does not count it as told to the caller.
  absl::Status AwaitDone() ABSL_LOCKS_EXCLUDED(mutex);

  const std::string path;
  std::stop_source stop;
  mutable absl::Mutex mutex;
  bool staged ABSL_GUARDED_BY(mutex) = false;
  bool done ABSL_GUARDED_BY(mutex) = false;
  bool was_told ABSL_GUARDED_BY(mutex) = false;  // the caller has the outcome
  absl::Status status ABSL_GUARDED_BY(mutex);
};

// For the thread that trains, except Run, which is the body of the thread that
// saves.
class AsyncSaver::Impl {
 public:
  explicit Impl(const Options& options);
  ~Impl();  // waits; logs a failure that nobody was told of

  // As AsyncSaver::save. If `ready` is not OK, the save fails with it on every
  // rank. `on_durable` is called on success, on the thread that saves.
  absl::StatusOr<SaveHandle> Save(const StateDict& state,
                                  const std::string& path,
                                  absl::Status ready = absl::OkStatus(),
                                  std::function<void()> on_durable = {});
  // Waits for the save in flight.
  void Join();

 private:
  absl::Status ReportEarlierFailure();
  void Run(SaveHandle::Impl& handle, std::unique_ptr<HeldState> held);
  absl::Status SaveHeld(SaveHandle::Impl& handle, const HeldState& held);
  dcp::BlockPool& Pool(const HeldState& held);

  const Options options_;
  dcp::FileSystem& fs_;
  std::unique_ptr<ProcessGroupCoordinator> coordinator_;
  std::unique_ptr<dcp::BlockPool> pool_;
  std::unique_ptr<dcp::SavePlanCache> plan_cache_;
  std::function<void()> on_durable_;
  std::shared_ptr<SaveHandle::Impl> latest_;  // shared with the caller's handle
  std::thread thread_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_ASYNC_SAVER_H_
