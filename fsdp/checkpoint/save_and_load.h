// SPDX-License-Identifier: Apache-2.0
// Saves and loads state dicts in a training job: every rank calls with the part
// that it holds. The format on disk is PyTorch's DCP. Loading also reads .pt
// and safetensors, onto any mesh and placements, and a checkpoint on a daemon
// (server/README.md), "tessera://host:7420/srv/run/step-12". Names and meaning
// are as in torch.distributed.checkpoint. For the thread that trains; all ranks
// make the same calls in the same order; an error on one rank is returned on
// all.
#ifndef FSDP_CHECKPOINT_SAVE_AND_LOAD_H_
#define FSDP_CHECKPOINT_SAVE_AND_LOAD_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "client/client_options.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/mapped/map_request.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct TorchSaveOptions {
  // The ranks that take part; null: the default group, or only this process if
  // there is none.
  ProcessGroup process_group = nullptr;
  bool overwrite = true;
  dcp::DirectMode direct = dcp::DirectMode::kAuto;
  uint64_t memory_bytes =
      dcp::kDefaultMemoryBytes;  // on this rank, for payload
  // Each rank's limit in bytes written per second; 0: no limit.
  uint64_t max_rate = 0;
  std::stop_token stop = {};
  dcp::TransferStats* stats = nullptr;
  dcp::FileSystem* file_system = nullptr;  // null: the operating system's
};

// Blocks until the checkpoint is durable. It is a directory, to which each rank
// writes a part, unless the path ends in .pt, .pth, .bin or .safetensors: then
// rank 0 writes one file, as torch.save or safetensors' save_file would, and
// receives the others' parts through windows, within `memory_bytes`.
// FailedPrecondition if the format is safetensors and some values are not
// tensors. InvalidArgument for a path on a daemon, from which checkpoints can
// only be loaded.
absl::Status save(const StateDict& state, const std::string& path,
                  const TorchSaveOptions& options = {});

struct TorchLoadOptions {
  ProcessGroup process_group = nullptr;
  // true: entries that the checkpoint lacks are left as they are, and logged by
  // name.
  bool allow_partial_load = false;
  // On meshes that replicate, one replica reads and the others receive, while
  // it reads the next part. false: each reads for itself. Absent: each reads
  // for itself if all are on one host with the checkpoint in the page cache,
  // because then reading is faster than sending. load_from_rank0 treats it as
  // true.
  std::optional<bool> broadcast_to_replicas = std::nullopt;
  uint64_t memory_bytes = dcp::kDefaultMemoryBytes;
  std::stop_token stop = {};
  // From a daemon, bytes_read counts received bytes, and num_reads calls.
  dcp::TransferStats* stats = nullptr;
  dcp::FileSystem* file_system = nullptr;
  // Compares the bytes that this rank reads with the checkpoint's CRCs and
  // digests, as LoadOptions::verify does: an error names the tensor. A chunk
  // that this rank reads only in part cannot be compared; load_from_rank0 reads
  // all ranks' parts and compares them together. Plain values are always
  // compared. A daemon sends CRCs along with the data. Off by default: it makes
  // a load from the page cache a fifth longer.
  bool verify = false;
  // Loads a model that another program spells, such as a Hugging Face folder
  // into a module with TorchTitan's names: docs/mappings.md. `state` then has
  // the names of the side `to`, with `model_to`, such as "app.model.", in front
  // of the model's, and `states_to`, such as "app.optim.state.", in front of
  // the optimizer's. All tensors in the checkpoint must fit the rules by name
  // and shape, or nothing is loaded: InvalidArgument, DataLoss or
  // FailedPrecondition name the rule and the tensor. Each rank reads only the
  // sources of the boxes that it holds. Tensors that the rules take for equal
  // in the checkpoint, such as tied embeddings, are compared before anything is
  // loaded, by each rank in part. A daemon gets the rules' text, and
  // config.json's if `config_file` or `config` names one; it maps, compares,
  // and sends the boxes' sources. Rules that do not fit are then
  // FailedPrecondition in place of DataLoss.
  std::optional<dcp::MapRequest> map = std::nullopt;
  // For a path on a daemon: TLS, token and retries; without a token file,
  // TESSERA_TOKEN has the token. `address`, which may be a unix socket, is for
  // paths without one, such as "tessera:///srv/run/step-12".
  dcp::client::ClientOptions daemon = {};
};

// Loads in place: fills the tensors in `state`, replaces plain values, and
// gives Stateful objects theirs. Every name, shape and type is checked before
// anything is read, and the error lists all mismatches. From a daemon each rank
// receives only the boxes that it holds, directly in the tensors if they are
// contiguous on the CPU.
absl::Status load(StateDict& state, const std::string& path,
                  const TorchLoadOptions& options = {});

// As Accelerate's cpu_ram_efficient_loading: only rank 0 reads the checkpoint
// (.pt, safetensors, a DCP directory) or talks to the daemon, and each rank
// receives parts of the tensors in `state` through a window of `memory_bytes`.
absl::Status load_from_rank0(StateDict& state, const std::string& path,
                             const TorchLoadOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SAVE_AND_LOAD_H_
