// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/load_targets.h"

#include <cstdint>
#include <utility>

#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/state_leaves.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {
namespace {

// An index without places does not parse.
constexpr dcp::StorageInfo kNowhere{.file = 0, .offset = 0, .length = 1};

absl::StatusOr<TargetTensor> MakeTarget(const StateLeaf& leaf) {
  TargetTensor target;
  target.fqn = leaf.fqn;
  if (const auto* tensor = leaf.value->get_if<DTensor>()) {
    target.local = tensor->to_local();
    target.spec = tensor->spec();
    target.shape.assign(tensor->shape().begin(), tensor->shape().end());
    DCP_RETURN_IF_ERROR(CheckHasMemory(target.local));
    DCP_ASSIGN_OR_RETURN(target.parts, FindLocalParts(*tensor));
  } else {
    target.local = *leaf.value->get_if<at::Tensor>();
    DCP_RETURN_IF_ERROR(CheckHasMemory(target.local));
    target.shape.assign(target.local.sizes().begin(),
                        target.local.sizes().end());
    target.parts.push_back({dcp::WholeBox(target.shape), target.local});
  }
  DCP_ASSIGN_OR_RETURN(target.dtype, ToDType(target.local.scalar_type()));
  return target;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadTargets>> MakeLoadTargets(
    const StateDict& state) {
  auto targets = std::make_unique<LoadTargets>();
  DCP_ASSIGN_OR_RETURN(targets->expanded, ExpandState(state));
  DCP_ASSIGN_OR_RETURN(const std::vector<StateLeaf> leaves,
                       FlattenState(targets->expanded));
  for (const StateLeaf& leaf : leaves) {
    if (!IsTensor(*leaf.value)) {
      targets->objects.push_back(leaf);
      continue;
    }
    absl::StatusOr<TargetTensor> tensor = MakeTarget(leaf);
    if (!tensor.ok()) return dcp::Annotate(tensor.status(), leaf.fqn);
    targets->tensors.push_back(*std::move(tensor));
  }
  return targets;
}

dcp::Metadata DescribeTargets(
    const LoadTargets& targets,
    absl::FunctionRef<bool(size_t tensor)> with_boxes) {
  dcp::Metadata metadata;
  metadata.files.emplace_back("wanted");
  for (size_t i = 0; i < targets.tensors.size(); ++i) {
    const TargetTensor& tensor = targets.tensors[i];
    metadata.entries.push_back(DescribeTensor(
        tensor.fqn, tensor.dtype, tensor.shape,
        with_boxes(i) ? tensor.parts : std::vector<LocalPart>()));
  }
  for (const StateLeaf& object : targets.objects) {
    metadata.entries.push_back({.fqn = object.fqn,
                                .path = {object.fqn},
                                .value = dcp::BytesStorageMetadata{kNowhere}});
  }
  return metadata;
}

dcp::MetadataEntry DescribeTensor(const std::string& fqn, dcp::DType dtype,
                                  dcp::Dims shape,
                                  absl::Span<const LocalPart> parts) {
  dcp::TensorStorageMetadata described{
      .dtype = dtype, .size = std::move(shape), .chunks = {}};
  for (const LocalPart& part : parts) {
    described.chunks.push_back({.box = part.box, .storage = kNowhere});
  }
  return {.fqn = fqn, .path = {fqn}, .value = std::move(described)};
}

}  // namespace fsdp
