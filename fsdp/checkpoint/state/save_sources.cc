#include "fsdp/checkpoint/state/save_sources.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/plain_value.h"
#include "fsdp/checkpoint/state/state_leaves.h"

namespace fsdp {
namespace {

// The number of ranks that hold the same part.
int64_t NumReplicas(const DTensorSpec& spec) {
  int64_t replicas = 1;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (!spec.placements[axis].is_shard()) {
      replicas *= spec.mesh.size(static_cast<int64_t>(axis));
    }
  }
  return replicas;
}

class Collector {
 public:
  explicit Collector(int64_t num_ranks) : num_ranks_(num_ranks) {}

  absl::Status Add(const StateLeaf& leaf) {
    if (const auto* tensor = leaf.value->get_if<at::Tensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(*tensor));
      const dcp::Dims shape(tensor->sizes().begin(), tensor->sizes().end());
      return AddPart(leaf, shape, {dcp::WholeBox(shape), *tensor}, num_ranks_);
    }
    if (const auto* tensor = leaf.value->get_if<DTensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(tensor->to_local()));
      DCP_ASSIGN_OR_RETURN(const std::vector<LocalPart> parts,
                           LocalPartsOf(*tensor));
      const dcp::Dims shape(tensor->shape().begin(), tensor->shape().end());
      for (const LocalPart& part : parts) {
        DCP_RETURN_IF_ERROR(
            AddPart(leaf, shape, part, NumReplicas(tensor->spec())));
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

  absl::Status AddPart(const StateLeaf& leaf, const dcp::Dims& shape,
                       const LocalPart& part, int64_t num_replicas) {
    DCP_ASSIGN_OR_RETURN(const dcp::DType dtype,
                         DTypeOf(part.local.scalar_type()));
    DCP_ASSIGN_OR_RETURN(std::shared_ptr<TransferStream> stream,
                         streams_.For(part.local.device()));
    result_->sources.push_back(
        std::make_unique<TorchTensorSource>(part.local, std::move(stream)));
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
                                                     int64_t num_ranks) {
  DCP_ASSIGN_OR_RETURN(StateDict expanded, ExpandState(state));
  DCP_ASSIGN_OR_RETURN(const std::vector<StateLeaf> leaves,
                       FlattenState(expanded));
  Collector collector(num_ranks);
  for (const StateLeaf& leaf : leaves) {
    DCP_RETURN_IF_ERROR(dcp::Annotate(collector.Add(leaf), leaf.fqn));
  }
  return std::move(collector).Finish();
}

}  // namespace

std::unique_ptr<SaveSources> SaveSources::Failed(absl::Status status) {
  auto sources = std::make_unique<SaveSources>();
  sources->state.status = std::move(status);
  return sources;
}

std::unique_ptr<SaveSources> MakeSaveSources(const StateDict& state,
                                             int64_t num_ranks) {
  absl::StatusOr<std::unique_ptr<SaveSources>> sources =
      Collect(state, num_ranks);
  return sources.ok() ? *std::move(sources)
                      : SaveSources::Failed(sources.status());
}

}  // namespace fsdp
