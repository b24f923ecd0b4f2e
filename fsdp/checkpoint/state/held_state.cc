#include "fsdp/checkpoint/state/held_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/flat_state.h"
#include "fsdp/checkpoint/state/tensor_parts.h"

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

class Holder {
 public:
  explicit Holder(int64_t num_ranks) : num_ranks_(num_ranks) {}

  absl::Status Add(const StateLeaf& leaf) {
    if (const auto* tensor = leaf.value->get_if<at::Tensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(*tensor));
      const dcp::Dims shape(tensor->sizes().begin(), tensor->sizes().end());
      return AddPart(leaf, shape, {dcp::WholeBox(shape), *tensor}, num_ranks_);
    }
    if (const auto* tensor = leaf.value->get_if<DTensor>()) {
      DCP_RETURN_IF_ERROR(CheckHasMemory(tensor->to_local()));
      DCP_ASSIGN_OR_RETURN(const std::vector<TensorPart> parts,
                           PartsOf(*tensor));
      const dcp::Dims shape(tensor->shape().begin(), tensor->shape().end());
      for (const TensorPart& part : parts) {
        DCP_RETURN_IF_ERROR(
            AddPart(leaf, shape, part, NumReplicas(tensor->spec())));
      }
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(const dcp::Value value,
                         ToValue(*leaf.value, held_->arena));
    held_->state.objects.push_back(
        {.fqn = leaf.fqn, .path = leaf.path, .value = value});
    return absl::OkStatus();
  }

  std::unique_ptr<HeldState> Finish() && {
    // Replicas go to the rank with the least so far, which may be off by one.
    held_->share_bytes += largest_replica_bytes_;
    return std::move(held_);
  }

 private:
  // More than a torch.save archive adds to a tensor.
  static constexpr uint64_t kFrameBytes = 4096;

  absl::Status AddPart(const StateLeaf& leaf, const dcp::Dims& shape,
                       const TensorPart& part, int64_t num_replicas) {
    DCP_ASSIGN_OR_RETURN(const dcp::DType dtype,
                         DTypeOf(part.local.scalar_type()));
    DCP_ASSIGN_OR_RETURN(std::shared_ptr<TransferStream> stream,
                         streams_.For(part.local.device()));
    held_->sources.push_back(
        std::make_unique<TorchTensorSource>(part.local, std::move(stream)));
    held_->state.tensors.push_back({.fqn = leaf.fqn,
                                    .path = leaf.path,
                                    .dtype = dtype,
                                    .shape = shape,
                                    .box = part.box,
                                    .source = held_->sources.back().get()});
    const uint64_t bytes =
        static_cast<uint64_t>(part.local.numel()) * dcp::ElementSize(dtype) +
        kFrameBytes;
    held_->share_bytes += bytes / static_cast<uint64_t>(num_replicas);
    if (num_replicas > 1) {
      largest_replica_bytes_ = std::max(largest_replica_bytes_, bytes);
    }
    return absl::OkStatus();
  }

  const int64_t num_ranks_;
  std::unique_ptr<HeldState> held_ = std::make_unique<HeldState>();
  TransferStreams streams_;
  uint64_t largest_replica_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<HeldState>> Hold(const StateDict& state,
                                                int64_t num_ranks) {
  DCP_ASSIGN_OR_RETURN(StateDict expanded, ExpandState(state));
  DCP_ASSIGN_OR_RETURN(const std::vector<StateLeaf> leaves,
                       FlattenState(expanded));
  Holder holder(num_ranks);
  for (const StateLeaf& leaf : leaves) {
    DCP_RETURN_IF_ERROR(dcp::Annotate(holder.Add(leaf), leaf.fqn));
  }
  return std::move(holder).Finish();
}

}  // namespace

std::unique_ptr<HeldState> HeldState::Failed(absl::Status status) {
  auto held = std::make_unique<HeldState>();
  held->state.status = std::move(status);
  return held;
}

std::unique_ptr<HeldState> HoldState(const StateDict& state,
                                     int64_t num_ranks) {
  absl::StatusOr<std::unique_ptr<HeldState>> held = Hold(state, num_ranks);
  return held.ok() ? *std::move(held) : HeldState::Failed(held.status());
}

}  // namespace fsdp
