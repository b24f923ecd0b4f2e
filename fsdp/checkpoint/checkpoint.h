// Saving and loading of state dicts by a training job: every rank calls with
// the part that it holds. On disk it is PyTorch's DCP format; loading also
// reads .pt and safetensors, onto any mesh and placements, and a checkpoint on
// a daemon (server/README.md), "tessera://host:7420/srv/run/step-12". Names and
// meaning are those of torch.distributed.checkpoint. For the thread that
// trains; all ranks make the same calls in the same order; an error on one rank
// is returned on all.
#ifndef FSDP_CHECKPOINT_CHECKPOINT_H_
#define FSDP_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client_options.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct TorchSaveOptions {
  // The ranks that take part; null: the default group, or this process alone if
  // there is none.
  ProcessGroup process_group = nullptr;
  bool overwrite = true;
  dcp::DirectMode direct = dcp::DirectMode::kAuto;
  uint64_t memory_bytes =
      dcp::kDefaultMemoryBytes;  // of this rank, for payload
  std::stop_token stop = {};
  dcp::TransferStats* stats = nullptr;
  dcp::FileSystem* file_system = nullptr;  // null: the operating system's
};

// Blocks until the checkpoint is durable. It is a directory, to which each rank
// writes its part, unless the path ends in .pt, .pth, .bin or .safetensors:
// then rank 0 writes one file, as torch.save or safetensors' save_file would,
// and receives what the others hold through windows, within `memory_bytes`.
// FailedPrecondition if safetensors cannot hold the values that are not
// tensors. InvalidArgument for a path on a daemon, from which checkpoints can
// only be loaded.
absl::Status save(const StateDict& state, const std::string& path,
                  const TorchSaveOptions& options = {});

// A save under way. Thread-safe.
class SaveHandle {
 public:
  // Blocks until the state has been copied: from then on tensors may change.
  // Call it before optimizer.step(); fsdp's parameters do not change before
  // that. OK even if the save has already failed: wait() and the next save
  // report the failure, where all ranks learn of it.
  absl::Status wait_staged();
  // Blocks until the checkpoint is durable on all ranks, or has failed on all.
  absl::Status wait();
  // Whether it has ended.
  bool done() const;
  // Whether it ended well; false while it runs.
  bool ok() const;
  // Abandons the save as soon as possible; wait() then returns Cancelled.
  void request_stop();

  struct Impl;
  explicit SaveHandle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;  // shared with the thread that saves
};

// Saves in the background. It owns the staging memory, which is allocated and
// touched once and reused (pinned if there is an accelerator), its own process
// group, and the plan of the last save, which stays valid while names, shapes
// and placements stay the same. It runs one save at a time: a second one first
// waits for the one before. Its destructor waits for the save in flight.
class AsyncSaver {
 public:
  struct Options {
    ProcessGroup process_group = nullptr;  // as TorchSaveOptions
    // 0: as large as the first state. If it is smaller than the state, the rest
    // streams through it, and wait_staged() waits for that.
    uint64_t staging_bytes = 0;
    bool overwrite = true;
    dcp::DirectMode direct = dcp::DirectMode::kAuto;
    dcp::FileSystem* file_system = nullptr;
  };

  AsyncSaver();
  explicit AsyncSaver(const Options& options);
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for the previous save, records the state and returns; copying and
  // writing continue in the background. wait() reports whatever is wrong with
  // the state, on all ranks. If the previous save failed and some rank has not
  // waited for it, its error is returned here, once, and nothing is saved.
  absl::StatusOr<SaveHandle> save(const StateDict& state,
                                  const std::string& path);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// AsyncSaver::save with a saver that the process keeps.
absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path);

struct TorchLoadOptions {
  ProcessGroup process_group = nullptr;
  // true: entries of the state that the checkpoint lacks are left as they are.
  bool allow_partial_load = false;
  // On meshes that replicate, one replica reads and the others receive.
  bool broadcast_to_replicas = true;
  uint64_t memory_bytes = dcp::kDefaultMemoryBytes;
  std::stop_token stop = {};
  // From a daemon, bytes_read counts received bytes, and num_reads calls.
  dcp::TransferStats* stats = nullptr;
  dcp::FileSystem* file_system = nullptr;
  // Compares what this rank reads with the checkpoint's CRCs and digests, as
  // LoadOptions::verify does: an error names the tensor. A chunk of which this
  // rank reads only a part cannot be compared; load_from_rank0 reads the parts
  // of all ranks and compares them together. Plain values are always compared.
  // A daemon sends its own CRCs along with the data. Off by default: it makes a
  // load from the page cache a fifth longer.
  bool verify = false;
  // For a path on a daemon: TLS, token and retries; without a token file the
  // token is that of TESSERA_TOKEN. `address`, which may be a unix socket, is
  // for paths without one, such as "tessera:///srv/run/step-12".
  dcp::client::ClientOptions daemon = {};
};

// Loads in place: fills the tensors of `state`, replaces its plain values, and
// gives Stateful objects theirs. Every name, shape and type is checked before
// anything is read, and the error lists all that is wrong. From a daemon each
// rank receives its own boxes, directly into its tensors if they are contiguous
// on the CPU.
absl::Status load(StateDict& state, const std::string& path,
                  const TorchLoadOptions& options = {});

// As Accelerate's cpu_ram_efficient_loading: only rank 0 reads the checkpoint
// (.pt, safetensors, a DCP directory) or talks to the daemon, and each rank
// receives its parts of the tensors in `state` through a window of
// `memory_bytes`.
absl::Status load_from_rank0(StateDict& state, const std::string& path,
                             const TorchLoadOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_CHECKPOINT_H_
