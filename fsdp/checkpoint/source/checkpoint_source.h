// SPDX-License-Identifier: Apache-2.0
// CheckpointSource: the checkpoint that a load reads: names, boxes of tensors,
// and plain values. The checkpoint is on a disk (local_source.h) or on a daemon
// (daemon_source.h); the load is the same. Used by one thread at a time.
#ifndef FSDP_CHECKPOINT_SOURCE_CHECKPOINT_SOURCE_H_
#define FSDP_CHECKPOINT_SOURCE_CHECKPOINT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "dcp/format/value/value.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/dtype.h"

namespace fsdp {

// The entry stored under a name.
struct StoredEntry {
  bool is_tensor = false;  // else a plain value
  // For a tensor; the shape lives as long as the source.
  dcp::DType dtype = dcp::DType::kFloat32;
  absl::Span<const int64_t> shape;
  // For errors: the tensors from which a mapping makes it; empty without one.
  std::string made_of = {};
};

class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;

  // The path as errors name it.
  virtual const std::string& path() const = 0;

  // Names the file in this host's page cache from which the checkpoint is read;
  // processes with an equal name read the same memory. Empty if the payload
  // comes from a disk, a store or a daemon.
  virtual std::string CachedAs() { return ""; }

  virtual std::optional<StoredEntry> Find(absl::string_view name) const = 0;

  // For errors about names that are not there: which ones a mapping makes
  // instead, as Checkpoint::NamesMade; empty without one.
  virtual std::string NamesMade() const = 0;

  // The plain values under `names`, without those that do not exist; they live
  // as long as the source. Unimplemented for a value that holds tensors.
  virtual absl::StatusOr<absl::flat_hash_map<std::string, dcp::Value>>
  ReadObjects(const absl::flat_hash_set<std::string>& names,
              std::stop_token stop) = 0;

  struct ReadOptions {
    uint64_t memory_bytes;  // for payload in transit
    std::stop_token stop;
    dcp::TransferStats* stats;  // may be null
  };
  // Compares parts of the tensors that a mapping takes for equal, as CheckTies
  // in dcp/checkpoint/read/tie_check.h; OK without a mapping.
  virtual absl::Status CheckTies(const dcp::TieParts& parts,
                                 const ReadOptions& options) = 0;

  // As Load (dcp/checkpoint/load/load.h), for tensors that exist and match,
  // after CheckTies. If a sink has no DirectSpan, bytes are placed in the order
  // of `tensors`, and in row-major order within a tensor.
  virtual absl::Status ReadTensors(absl::Span<const dcp::LoadTensor> tensors,
                                   const ReadOptions& options) = 0;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_CHECKPOINT_SOURCE_H_
