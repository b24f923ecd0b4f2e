// Saving and loading of state dicts by a training job: every rank calls with
// what it holds. On disk it is PyTorch's DCP format; loading takes .pt and
// safetensors too, onto any mesh and placements. Names and meaning are those
// of torch.distributed.checkpoint. Loading also takes a checkpoint on a daemon
// (server/README.md), "tessera://host:7420/srv/run/step-12". For the thread
// that trains; all ranks make the same calls in the same order; an error of one
// rank is returned on all.
#ifndef DCP_TORCH_CHECKPOINT_H_
#define DCP_TORCH_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client_options.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/torch/state_value.h"
#include "fsdp/process_group.h"

namespace dcp {

struct TorchSaveOptions {
  // Who takes part; null: the default group, or this process alone without
  // one.
  fsdp::ProcessGroup process_group = nullptr;
  bool overwrite = true;
  DirectMode direct = DirectMode::kAuto;
  uint64_t memory_bytes = uint64_t{256} << 20;  // of this rank, for payload
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
  FileSystem* file_system = nullptr;  // null: the operating system's
};

// Blocks until the checkpoint is durable: a directory, to which each rank
// writes its part; or, where the path ends in .pt, .pth, .bin or .safetensors,
// one file, as torch.save and safetensors' save_file make it, which rank 0
// writes and gets through windows what the others hold, within `memory_bytes`.
// FailedPrecondition where safetensors cannot hold the values that are not
// tensors. InvalidArgument for a path on a daemon, from which checkpoints are
// only loaded.
absl::Status save(const StateDict& state, const std::string& path,
                  const TorchSaveOptions& options = {});

// A save under way. Thread-safe.
class SaveHandle {
 public:
  // Until the state has been copied: now tensors may change. Call it before
  // optimizer.step(); fsdp's parameters do not change before. OK also when the
  // save has failed by then: that is told where all ranks learn it, by wait()
  // and by the next save.
  absl::Status wait_staged();
  // Until the checkpoint is durable on all ranks, or failed on all.
  absl::Status wait();
  // Whether it has ended.
  bool done() const;
  // Whether it ended well; false while it runs.
  bool ok() const;
  // Gives it up as soon as possible; wait() then returns Cancelled.
  void request_stop();

  struct Impl;
  explicit SaveHandle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;  // shared with the thread that saves
};

// Saves from a process: owns the staging memory, which is allocated and
// touched once and reused (pinned where there is an accelerator), a process
// group of its own, and the plan of the last save, which holds as long as
// names, shapes and placements stay. One save at a time: a second one first
// waits for the one before. Its destructor waits for what was promised.
class AsyncSaver {
 public:
  struct Options {
    fsdp::ProcessGroup process_group = nullptr;  // as TorchSaveOptions
    // 0: as large as the first state. Smaller than the state: what does not
    // fit streams through, and wait_staged() takes as long as that.
    uint64_t staging_bytes = 0;
    bool overwrite = true;
    DirectMode direct = DirectMode::kAuto;
    FileSystem* file_system = nullptr;
  };

  AsyncSaver();
  explicit AsyncSaver(const Options& options);
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for the save before, takes note of the state and returns; copying
  // and writing go on behind. Whatever is wrong with the state is told by
  // wait(), on all ranks. The failure of the save before, if any rank has not
  // waited for it, is returned here, once, and nothing is saved.
  absl::StatusOr<SaveHandle> save(const StateDict& state,
                                  const std::string& path);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// AsyncSaver::save by a saver of the process.
absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path);

struct TorchLoadOptions {
  fsdp::ProcessGroup process_group = nullptr;
  // true: names in the state that the checkpoint lacks are left as they are.
  bool allow_partial_load = false;
  // On meshes that replicate, one replica reads and the others receive.
  bool broadcast_to_replicas = true;
  uint64_t memory_bytes = uint64_t{256} << 20;
  std::stop_token stop = {};
  // From a daemon: bytes_read have arrived, in num_reads calls.
  TransferStats* stats = nullptr;
  FileSystem* file_system = nullptr;
  // Compares what this rank reads with the CRCs and digests that the checkpoint
  // has of it, as LoadOptions::verify: an error names the tensor. A chunk of
  // which this rank reads a part only cannot be compared; load_from_rank0 reads
  // the parts of all ranks and compares them together. Plain values always are.
  // What comes from a daemon has CRCs of its own on the way. Off by default: it
  // makes a load out of the page cache a fifth longer.
  bool verify = false;
  // Of a path on a daemon: TLS, token and retries; the token is TESSERA_TOKEN's
  // where there is no file. `address` is for paths without one,
  // "tessera:///srv/run/step-12", such as that of a unix socket.
  client::ClientOptions daemon = {};
};

// In place: fills the tensors of `state`, replaces its plain values, gives
// Stateful objects theirs. Every name, shape and type is checked before
// anything is read, and all that is wrong is listed. From a daemon each rank
// gets its own boxes, into the memory of its tensors where that is contiguous
// on the CPU.
absl::Status load(StateDict& state, const std::string& path,
                  const TorchLoadOptions& options = {});

// cpu_ram_efficient_loading: rank 0 alone reads the file (.pt, safetensors, a
// DCP directory), or talks to the daemon, and each rank receives its parts of
// the tensors in `state`, through a window of `memory_bytes`.
absl::Status load_from_rank0(StateDict& state, const std::string& path,
                             const TorchLoadOptions& options = {});

}  // namespace dcp

#endif  // DCP_TORCH_CHECKPOINT_H_
