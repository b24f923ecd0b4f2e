// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/save_sources.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "ATen/ops/cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/plain_value.h"
#include "fsdp/checkpoint/state/state_leaves.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/lazy_key.h"

namespace fsdp {
namespace {

// How many ranks hold the same part.
int64_t NumReplicas(const DTensorSpec& spec) {
  int64_t replicas = 1;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (!spec.placements[axis].is_shard()) {
      replicas *= spec.mesh.size(static_cast<int64_t>(axis));
    }
  }
  return replicas;
}

// See Note: small tensors. BatchNorms have at most some thousand channels.
constexpr uint64_t kMostBytesOfSmall = 64 << 10;

bool IsSmall(const at::Tensor& tensor) {
  // A shard changes only in a step.
  return CheckHasMemory(tensor).ok() && ToDType(tensor.scalar_type()).ok() &&
         !HasLazyKey(tensor) && tensor.nbytes() <= kMostBytesOfSmall;
}

// By leaf: a copy's bytes, or an undefined tensor if the leaf is not small.
std::vector<at::Tensor> CopySmall(const std::vector<StateLeaf>& leaves) {
  struct Pack {
    std::vector<size_t> leaves;
    std::vector<at::Tensor> bytes;
    std::vector<int64_t> lengths;
  };
  std::unordered_map<c10::Device, Pack> packs;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto* tensor = leaves[i].value->get_if<at::Tensor>();
    if (tensor == nullptr || !IsSmall(*tensor)) continue;
    Pack& pack = packs[tensor->device()];
    pack.leaves.push_back(i);
    pack.bytes.push_back(RowMajorBytes(*tensor));
    pack.lengths.push_back(pack.bytes.back().numel());
  }
  std::vector<at::Tensor> copies(leaves.size());
  for (const auto& [device, pack] : packs) {
    const std::vector<at::Tensor> pieces =
        at::cat(pack.bytes).split_with_sizes(pack.lengths);
    for (size_t i = 0; i < pieces.size(); ++i) {
      copies[pack.leaves[i]] = pieces[i];
    }
  }
  return copies;
}

class Collector {
 public:
  explicit Collector(int64_t num_ranks) : num_ranks_(num_ranks) {}

  // `copy`: a plain tensor's bytes, if they were copied.
  absl::Status Add(const StateLeaf& leaf, const at::Tensor& copy) {
    if (const auto* tensor = leaf.value->get_if<at::Tensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(*tensor));
      const dcp::Dims shape(tensor->sizes().begin(), tensor->sizes().end());
      return AddPart(leaf, shape, {dcp::WholeBox(shape), *tensor}, num_ranks_,
                     copy.defined() ? copy : *tensor);
    }
    if (const auto* tensor = leaf.value->get_if<DTensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(tensor->to_local()));
      DCP_ASSIGN_OR_RETURN(const std::vector<LocalPart> parts,
                           FindLocalParts(*tensor));
      const dcp::Dims shape(tensor->shape().begin(), tensor->shape().end());
      for (const LocalPart& part : parts) {
        DCP_RETURN_IF_ERROR(AddPart(leaf, shape, part,
                                    NumReplicas(tensor->spec()), part.local));
      }
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(const dcp::Value value,
                         ToValue(*leaf.value, result_->arena));
    result_->state.objects.push_back(
        {.fqn = leaf.fqn, .path = leaf.path, .value = value});
    return absl::OkStatus();
  }

  std::unique_ptr<SaveSources> Finish() && {
    // Replicas go to the rank with the least so far, which may be off by one.
    result_->share_bytes += largest_replica_bytes_;
    return std::move(result_);
  }

 private:
  // More than a torch.save archive adds to a tensor.
  static constexpr uint64_t kFrameBytes = 4096;

  // The part's bytes are read from `memory`.
  absl::Status AddPart(const StateLeaf& leaf, const dcp::Dims& shape,
                       const LocalPart& part, int64_t num_replicas,
                       const at::Tensor& memory) {
    DCP_ASSIGN_OR_RETURN(const dcp::DType dtype,
                         ToDType(part.local.scalar_type()));
    DCP_ASSIGN_OR_RETURN(std::shared_ptr<TransferStream> stream,
                         streams_.For(part.local.device()));
    result_->sources.push_back(
        std::make_unique<TorchTensorSource>(memory, std::move(stream)));
    result_->state.tensors.push_back({.fqn = leaf.fqn,
                                      .path = leaf.path,
                                      .dtype = dtype,
                                      .shape = shape,
                                      .box = part.box,
                                      .source = result_->sources.back().get()});
    const uint64_t bytes =
        static_cast<uint64_t>(part.local.numel()) * dcp::ElementSize(dtype) +
        kFrameBytes;
    result_->share_bytes += bytes / static_cast<uint64_t>(num_replicas);
    if (num_replicas > 1) {
      largest_replica_bytes_ = std::max(largest_replica_bytes_, bytes);
    }
    return absl::OkStatus();
  }

  const int64_t num_ranks_;
  std::unique_ptr<SaveSources> result_ = std::make_unique<SaveSources>();
  TransferStreams streams_;
  uint64_t largest_replica_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<SaveSources>> Collect(const StateDict& state,
                                                     int64_t num_ranks,
                                                     bool copies_small) {
  DCP_ASSIGN_OR_RETURN(StateDict expanded, ExpandState(state));
  DCP_ASSIGN_OR_RETURN(const std::vector<StateLeaf> leaves,
                       FlattenState(expanded));
  // Streams for copies begin after all work that was issued before them.
  std::vector<at::Tensor> copies(leaves.size());
  if (copies_small) {
    DCP_ASSIGN_OR_RETURN(copies, CatchTorch([&] { return CopySmall(leaves); }));
  }
  Collector collector(num_ranks);
  for (size_t i = 0; i < leaves.size(); ++i) {
    DCP_RETURN_IF_ERROR(
        dcp::Annotate(collector.Add(leaves[i], copies[i]), leaves[i].fqn));
  }
  return std::move(collector).Finish();
}

}  // namespace

std::unique_ptr<SaveSources> SaveSources::Failed(absl::Status status) {
  auto sources = std::make_unique<SaveSources>();
  sources->state.status = std::move(status);
  return sources;
}

std::vector<at::Tensor> SaveSources::tensors() const {
  std::vector<at::Tensor> all;
  for (const auto& source : sources) all.push_back(source->tensor());
  return all;
}

std::unique_ptr<SaveSources> MakeSaveSources(const StateDict& state,
                                             int64_t num_ranks,
                                             bool copies_small) {
  absl::StatusOr<std::unique_ptr<SaveSources>> sources =
      Collect(state, num_ranks, copies_small);
  return sources.ok() ? *std::move(sources)
                      : SaveSources::Failed(sources.status());
}

}  // namespace fsdp
