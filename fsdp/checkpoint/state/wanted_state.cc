#include "fsdp/checkpoint/state/wanted_state.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/tensor/element.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {
namespace {

// An index without places does not parse.
constexpr dcp::StorageInfo kNowhere{.file = 0, .offset = 0, .length = 1};

absl::StatusOr<WantedTensor> Want(const StateLeaf& leaf) {
  WantedTensor wanted;
  wanted.fqn = leaf.fqn;
  if (const auto* tensor = leaf.value->get_if<DTensor>()) {
    wanted.local = tensor->to_local();
    wanted.spec = tensor->spec();
    wanted.shape.assign(tensor->shape().begin(), tensor->shape().end());
    DCP_RETURN_IF_ERROR(CheckHasMemory(wanted.local));
    DCP_ASSIGN_OR_RETURN(wanted.parts, PartsOf(*tensor));
  } else {
    wanted.local = *leaf.value->get_if<at::Tensor>();
    DCP_RETURN_IF_ERROR(CheckHasMemory(wanted.local));
    wanted.shape.assign(wanted.local.sizes().begin(),
                        wanted.local.sizes().end());
    wanted.parts.push_back({dcp::WholeBox(wanted.shape), wanted.local});
  }
  DCP_ASSIGN_OR_RETURN(wanted.dtype, DTypeOf(wanted.local.scalar_type()));
  return wanted;
}

bool IsTensor(const StateValue& value) {
  return value.get_if<at::Tensor>() != nullptr ||
         value.get_if<DTensor>() != nullptr;
}

std::string ProblemOf(const dcp::MetadataEntry& wanted,
                      const StoredEntry& stored) {
  const auto* tensor = std::get_if<dcp::TensorStorageMetadata>(&wanted.value);
  if (tensor == nullptr) {
    return stored.is_tensor ? absl::StrCat(wanted.fqn,
                                           " is stored as a tensor, wanted as "
                                           "a plain value")
                            : "";
  }
  if (!stored.is_tensor) {
    return absl::StrCat(wanted.fqn,
                        " is stored as a plain value, wanted as a tensor");
  }
  if (stored.shape != absl::MakeConstSpan(tensor->size)) {
    return absl::StrCat(wanted.fqn, " is stored as ",
                        dcp::ShapeToString(stored.shape), ", wanted as ",
                        dcp::ShapeToString(tensor->size));
  }
  if (!dcp::CanConvert(stored.dtype, tensor->dtype)) {
    return absl::StrCat(wanted.fqn, " is stored as ",
                        dcp::TorchName(stored.dtype), ", wanted as ",
                        dcp::TorchName(tensor->dtype));
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<WantedState>> WantState(const StateDict& state) {
  auto wanted = std::make_unique<WantedState>();
  DCP_ASSIGN_OR_RETURN(wanted->expanded, ExpandState(state));
  DCP_ASSIGN_OR_RETURN(const std::vector<StateLeaf> leaves,
                       FlattenState(wanted->expanded));
  for (const StateLeaf& leaf : leaves) {
    if (!IsTensor(*leaf.value)) {
      wanted->objects.push_back(leaf);
      continue;
    }
    absl::StatusOr<WantedTensor> tensor = Want(leaf);
    if (!tensor.ok()) return dcp::Annotate(tensor.status(), leaf.fqn);
    wanted->tensors.push_back(*std::move(tensor));
  }
  return wanted;
}

dcp::Metadata DescribeWanted(
    const WantedState& wanted,
    absl::FunctionRef<bool(size_t tensor)> with_boxes) {
  dcp::Metadata metadata;
  metadata.files.emplace_back("wanted");
  for (size_t i = 0; i < wanted.tensors.size(); ++i) {
    const WantedTensor& tensor = wanted.tensors[i];
    dcp::TensorStorageMetadata described{
        .dtype = tensor.dtype, .size = tensor.shape, .chunks = {}};
    if (with_boxes(i)) {
      for (const TensorPart& part : tensor.parts) {
        described.chunks.push_back({.box = part.box, .storage = kNowhere});
      }
    }
    metadata.entries.push_back({.fqn = tensor.fqn,
                                .path = {tensor.fqn},
                                .value = std::move(described)});
  }
  for (const StateLeaf& object : wanted.objects) {
    metadata.entries.push_back({.fqn = object.fqn,
                                .path = {object.fqn},
                                .value = dcp::BytesStorageMetadata{kNowhere}});
  }
  return metadata;
}

absl::StatusOr<absl::flat_hash_set<std::string>> CheckWanted(
    const CheckpointSource& source, absl::Span<const dcp::Metadata> ranks,
    bool allow_partial) {
  absl::flat_hash_set<std::string> absent;
  absl::flat_hash_set<std::string> seen;
  std::vector<std::string> missing;
  std::vector<std::string> unfit;
  for (const dcp::Metadata& rank : ranks) {
    for (const dcp::MetadataEntry& wanted : rank.entries) {
      const std::optional<StoredEntry> stored = source.Find(wanted.fqn);
      if (!stored.has_value()) {
        if (absent.insert(wanted.fqn).second) missing.push_back(wanted.fqn);
        continue;
      }
      std::string problem = ProblemOf(wanted, *stored);
      if (!problem.empty() && seen.insert(problem).second) {
        unfit.push_back(std::move(problem));
      }
    }
  }
  if (allow_partial) missing.clear();
  if (missing.empty() && unfit.empty()) return absent;
  std::sort(missing.begin(), missing.end());
  std::string message = absl::StrCat(source.path(), ": ");
  if (!missing.empty()) {
    absl::StrAppend(&message, "it lacks ", absl::StrJoin(missing, ", "),
                    unfit.empty() ? "" : "; ");
  }
  absl::StrAppend(&message, absl::StrJoin(unfit, "; "));
  return unfit.empty() ? absl::NotFoundError(message)
                       : absl::InvalidArgumentError(message);
}

}  // namespace fsdp
