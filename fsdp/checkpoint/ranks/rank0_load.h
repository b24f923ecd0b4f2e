// SPDX-License-Identifier: Apache-2.0
// Rank0Load: the exchange in load_from_rank0. Every rank tells rank 0 which
// names and boxes it loads. Rank 0 compares them with the checkpoint, answers
// with the plain values, and while it reads, sends each rank the requested
// boxes as one stream. For the thread that trains; collective over the
// coordinator's ranks.
#ifndef FSDP_CHECKPOINT_RANKS_RANK0_LOAD_H_
#define FSDP_CHECKPOINT_RANKS_RANK0_LOAD_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/format/value/value.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

class Rank0Load {
 public:
  // As in TorchLoadOptions.
  struct Options {
    bool allow_partial = false;
    uint64_t memory_bytes = 0;
    std::stop_token stop = {};
    dcp::TransferStats* stats = nullptr;
  };
  using Open =
      absl::FunctionRef<absl::StatusOr<std::unique_ptr<CheckpointSource>>()>;

  // `coordinator` outlives this.
  Rank0Load(ProcessGroupCoordinator& coordinator, const Options& options)
      : coordinator_(coordinator), options_(options) {}

  // Asks for `request`, which is from DescribeTargets. Rank 0 calls `open`. An
  // error on any rank is returned on all.
  absl::Status Ask(const dcp::Metadata& request, Open open);

  // After Ask: the names that the checkpoint lacks, for this rank; on rank 0,
  // for all ranks.
  const absl::flat_hash_set<std::string>& absent() const { return absent_; }
  // The plain values that this rank asked for; they live as long as this.
  const absl::flat_hash_map<std::string, dcp::Value>& objects() const {
    return objects_;
  }

  // Fills `tensors`: the boxes in this rank's request that are not absent. An
  // error on any rank is returned on all.
  absl::Status Move(absl::Span<const dcp::LoadTensor> tensors);

 private:
  absl::StatusOr<std::vector<std::string>> Answer(
      absl::Span<const std::string> requests, Open open);
  absl::Status Accept(const std::string& answer);
  absl::Status Send(absl::Span<const dcp::LoadTensor> own);
  absl::Status Receive(absl::Span<const dcp::LoadTensor> tensors);

  ProcessGroupCoordinator& coordinator_;
  const Options options_;
  dcp::ValueArena arena_;
  absl::flat_hash_set<std::string> absent_;
  absl::flat_hash_map<std::string, dcp::Value> objects_;
  uint64_t window_bytes_ = 0;
  // On rank 0.
  std::unique_ptr<CheckpointSource> source_;
  std::vector<dcp::Metadata> requests_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK0_LOAD_H_
