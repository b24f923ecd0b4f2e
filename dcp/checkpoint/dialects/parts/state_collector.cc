// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/state_collector.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/tensor/flat_boxes.h"

namespace dcp {
namespace {

bool SameTensor(const TensorEntry& a, const TensorEntry& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.num_bytes() == 0) return true;
  const ChunkLocation& x = a.locations[0];
  const ChunkLocation& y = b.locations[0];
  return x.record.length > 0 && x.record.length == y.record.length &&
         x.record.crc == y.record.crc && x.strides == y.strides &&
         x.conj == y.conj && x.neg == y.neg && x.swap_bytes == y.swap_bytes &&
         x.payload_offset - x.record.offset ==
             y.payload_offset - y.record.offset;
}

// Objects with tensors inside are not compared.
bool SameObject(const ObjectEntry& a, const ObjectEntry& b) {
  return a.unreadable.ok() && b.unreadable.ok() && a.tensors.empty() &&
         b.tensors.empty() && DeepEqual(a.value, b.value);
}

bool SameValue(const CheckpointEntry& a, const CheckpointEntry& b) {
  if (a.tensor() != nullptr && b.tensor() != nullptr) {
    return SameTensor(*a.tensor(), *b.tensor());
  }
  return a.object() != nullptr && b.object() != nullptr &&
         SameObject(*a.object(), *b.object());
}

// False also if there is no CRC to compare.
bool AreKnownToDiffer(const CheckpointEntry& a, const CheckpointEntry& b) {
  const TensorEntry* const x = a.tensor();
  const TensorEntry* const y = b.tensor();
  if (x != nullptr && y != nullptr && x->dtype == y->dtype &&
      x->shape == y->shape && x->num_bytes() > 0 &&
      (x->locations[0].record.length == 0 ||
       y->locations[0].record.length == 0)) {
    return false;
  }
  return !SameValue(a, b);
}

// Whether the value at the path counts an optimizer's steps:
// optimizer.state.w.step, or a group's.
bool CountsSteps(const StatePath& path) {
  if (path.back() != PathElement("step")) return false;
  return std::any_of(path.begin(), path.end(), [](const PathElement& element) {
    return element == PathElement("state") ||
           element == PathElement("param_groups");
  });
}

// The path for rank `rank`'s own value: the last element ends in "@rank". An
// index cannot, so it becomes one element with the key before it: rank 1's
// ("rng", "cuda", 0) is ("rng", "cuda.0@1").
StatePath PathWithRank(StatePath path, int64_t rank) {
  std::string text;
  while (std::holds_alternative<int64_t>(path.back()) && path.size() > 1) {
    text = absl::StrCat(".", std::get<int64_t>(path.back()), text);
    path.pop_back();
  }
  path.back() = absl::StrCat(PathToName({path.back()}), text, "@", rank);
  return path;
}

// Drops boxes that were there before.
StateCollector::Part RemoveReplicas(StateCollector::Part part) {
  absl::flat_hash_set<std::string> seen;
  StateCollector::Part kept;
  kept.dtype = part.dtype;
  kept.shape = std::move(part.shape);
  for (size_t i = 0; i < part.boxes.size(); ++i) {
    if (!seen.insert(ToString(part.boxes[i])).second) continue;
    kept.boxes.push_back(std::move(part.boxes[i]));
    kept.locations.push_back(std::move(part.locations[i]));
  }
  return kept;
}

absl::StatusOr<TensorEntry> JoinPart(StateCollector::Part part) {
  part = RemoveReplicas(std::move(part));
  DCP_RETURN_IF_ERROR(CheckCoverage(part.shape, part.boxes));
  TensorEntry tensor;
  tensor.dtype = part.dtype;
  tensor.shape = std::move(part.shape);
  tensor.boxes = std::move(part.boxes);
  tensor.locations = std::move(part.locations);
  return tensor;
}

}  // namespace

absl::StatusOr<StateCollector::Collected*> StateCollector::Find(
    const StatePath& path, bool is_parts) {
  DCP_CHECK(!path.empty(), "a value without a path");
  const std::string name = PathToName(path);
  const auto [it, is_new] = by_name_.emplace(name, all_.size());
  if (is_new) {
    Collected& added = all_.emplace_back();
    added.path = path;
    added.is_parts = is_parts;
    return &added;
  }
  Collected& found = all_[it->second];
  if (found.is_parts != is_parts) {
    return absl::DataLossError(absl::StrCat(
        name, " is sharded on one rank, and a whole value on another"));
  }
  return &found;
}

absl::Status StateCollector::AddPart(const StatePath& path, int64_t rank,
                                     Part part) {
  DCP_ASSIGN_OR_RETURN(Collected* const found, Find(path, /*is_parts=*/true));
  Part& whole = found->parts;
  if (found->values.empty() && whole.shape.empty() && whole.boxes.empty()) {
    whole.dtype = part.dtype;
    whole.shape = part.shape;
  }
  if (part.dtype != whole.dtype || part.shape != whole.shape) {
    return absl::DataLossError(
        absl::StrCat(PathToName(path), " is ", TorchName(part.dtype), " ",
                     ShapeToString(part.shape), " on rank ", rank, ", but ",
                     TorchName(whole.dtype), " ", ShapeToString(whole.shape),
                     " on a rank before it"));
  }
  for (size_t i = 0; i < part.boxes.size(); ++i) {
    whole.boxes.push_back(std::move(part.boxes[i]));
    whole.locations.push_back(std::move(part.locations[i]));
  }
  return absl::OkStatus();
}

absl::Status StateCollector::AddValue(const StatePath& path, int64_t rank,
                                      CheckpointEntry entry) {
  DCP_ASSIGN_OR_RETURN(Collected* const found, Find(path, /*is_parts=*/false));
  for (const auto& [other, value] : found->values) {
    if (other == rank) {
      return absl::DataLossError(
          absl::StrCat("rank ", rank, " has two values of this name"));
    }
    if (SameValue(value, entry)) return absl::OkStatus();
    if (CountsSteps(path) && AreKnownToDiffer(value, entry)) {
      return absl::DataLossError(absl::StrCat(
          PathToName(path), " of rank ", rank, " differs from that of rank ",
          other,
          ": their files come from different steps; put those of one "
          "step together"));
    }
  }
  found->values.emplace_back(rank, std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointEntry>> StateCollector::Finish() && {
  std::vector<CheckpointEntry> entries;
  for (Collected& collected : all_) {
    if (collected.is_parts) {
      CheckpointEntry& entry = entries.emplace_back();
      entry.fqn = PathToName(collected.path);
      absl::StatusOr<TensorEntry> tensor = JoinPart(std::move(collected.parts));
      if (!tensor.ok()) return Annotate(tensor.status(), entry.fqn);
      entry.value = *std::move(tensor);
      entry.path = std::move(collected.path);
      continue;
    }
    for (size_t i = 0; i < collected.values.size(); ++i) {
      auto& [rank, value] = collected.values[i];
      value.path = i == 0 ? collected.path : PathWithRank(collected.path, rank);
      value.fqn = PathToName(value.path);
      if (i > 0 && by_name_.contains(value.fqn)) {
        return absl::DataLossError(absl::StrCat(
            value.fqn, " is the name of a value, and also of rank ", rank,
            "'s own ", PathToName(collected.path)));
      }
      entries.push_back(std::move(value));
    }
  }
  return entries;
}

ChunkLocation NarrowToBox(const TensorEntry& tensor, const Box& box) {
  DCP_CHECK(tensor.locations.size() == 1, "a tensor of several chunks");
  ChunkLocation location = tensor.locations[0];
  const Dims strides = location.strides.empty() ? RowMajorStrides(tensor.shape)
                                                : location.strides;
  int64_t first = 0;
  for (size_t d = 0; d < box.offsets.size(); ++d) {
    first += box.offsets[d] * strides[d];
  }
  location.payload_offset +=
      static_cast<uint64_t>(first) * ElementSize(tensor.dtype);
  location.item.offset = location.payload_offset;
  location.item.length =
      static_cast<uint64_t>(Volume(box.sizes)) * ElementSize(tensor.dtype);
  location.strides = strides == RowMajorStrides(box.sizes) ? Dims() : strides;
  return location;
}

StateCollector::Part FlatPart(const TensorEntry& vector, int64_t at,
                              int64_t count, const Dims& shape, int64_t begin) {
  StateCollector::Part part;
  part.dtype = vector.dtype;
  part.shape = shape;
  for (FlatBox& piece : FlatBoxes(shape, begin, begin + count)) {
    const int64_t size = Volume(piece.box.sizes);
    ChunkLocation location =
        NarrowToBox(vector, {.offsets = {at + piece.offset}, .sizes = {size}});
    // A vector's stride other than 1 would be a stride for each dimension.
    if (!location.strides.empty()) {
      Dims strides = RowMajorStrides(piece.box.sizes);
      for (int64_t& stride : strides) stride *= location.strides[0];
      location.strides = std::move(strides);
    }
    part.boxes.push_back(std::move(piece.box));
    part.locations.push_back(std::move(location));
  }
  return part;
}

}  // namespace dcp
