// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/rank_tensor.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/placement.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The arguments to torch._tensor._rebuild_from_type_v2 for a subclass that
// wraps other tensors: (function, class, (class, dtype, size, ...), state).
struct Wrapper {
  Value type;
  absl::Span<const Value> args;  // at least the three named above
  Value state;
};

absl::Status BadShards(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("sharded tensor: ", what));
}

bool IsDTensorClass(const Value& type) {
  return type.IsGlobal("torch.distributed.tensor", "DTensor") ||
         type.IsGlobal("torch.distributed._tensor.api", "DTensor");
}

bool IsShardedTensorClass(const Value& type) {
  return type.IsGlobal("torch.distributed._shard.sharded_tensor.api",
                       "ShardedTensor");
}

std::optional<Wrapper> FindWrapper(Value value) {
  if (value.IsCallOf("torch._utils", "_rebuild_parameter") &&
      !value.args().items().empty()) {
    value = value.args().items()[0];
  }
  if (!value.IsCallOf("torch._tensor", "_rebuild_from_type_v2")) {
    return std::nullopt;
  }
  const absl::Span<const Value> args = value.args().items();
  constexpr size_t kSizeArgument = 2;
  if (args.size() != 4 || !args[2].is(Kind::kTuple) ||
      args[2].items().size() <= kSizeArgument ||
      (!IsDTensorClass(args[1]) && !IsShardedTensorClass(args[1]))) {
    return std::nullopt;
  }
  return Wrapper{args[1], args[2].items(), args[3]};
}

// The ints in a tuple or a list.
absl::StatusOr<Dims> ParseInts(const Value& value, absl::string_view what) {
  const bool is_sequence = value.is(Kind::kTuple) || value.is(Kind::kList);
  if (!is_sequence || value.items().size() > kMaxDims) {
    return BadShards(absl::StrCat(what, " is ", ToString(value, 40)));
  }
  Dims ints;
  for (const Value& item : value.items()) {
    if (!item.is(Kind::kInt)) {
      return BadShards(absl::StrCat(what, " is ", ToString(value, 40)));
    }
    ints.push_back(item.int_value());
  }
  return ints;
}

// The product of an int, or of a tuple of ints that may be nested.
absl::StatusOr<int64_t> AxisSize(const Value& value) {
  if (value.is(Kind::kInt)) return value.int_value();
  DCP_ASSIGN_OR_RETURN(const Dims sizes, ParseInts(value, "an axis of a mesh"));
  const std::optional<int64_t> size = CheckedVolume(sizes);
  if (!size.has_value()) {
    return BadShards(
        absl::StrCat("an axis of a mesh is ", ToString(value, 40)));
  }
  return *size;
}

// A DeviceMesh's sizes: the shape of the rank tensor until PyTorch 2.9, then a
// layout's sizes, with one shape for all axes (2.11) or one for each.
absl::StatusOr<Dims> MeshSizes(const Value& mesh) {
  if (const Value ranks = ObjectAttribute(mesh, "mesh"); !ranks.is_none()) {
    DCP_ASSIGN_OR_RETURN(const TorchTensor tensor, ParseTensor(ranks));
    return tensor.sizes;
  }
  const Value layout = ObjectAttribute(mesh, "_layout");
  const Value axes = ObjectAttribute(layout, "axes");
  const Value shape = ObjectAttribute(layout, "shape");
  Dims sizes;
  if (shape.is(Kind::kInt)) {
    sizes.push_back(shape.int_value());
    return sizes;
  }
  const Value& all = axes.is_none() ? shape : axes;
  if (!all.is(Kind::kTuple) || all.items().size() > kMaxDims) {
    return BadShards("its mesh has no shape");
  }
  for (const Value& axis : all.items()) {
    DCP_ASSIGN_OR_RETURN(
        const int64_t size,
        AxisSize(axes.is_none() ? axis : ObjectAttribute(axis, "shape")));
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<Mesh> ParseDeviceMesh(const Value& value) {
  DCP_ASSIGN_OR_RETURN(const Dims sizes, MeshSizes(value));
  Value names = ObjectAttribute(value, "_mesh_dim_names");
  if (names.is_none()) names = ObjectAttribute(value, "mesh_dim_names");
  Mesh mesh;
  int64_t num_ranks = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > kMaxRanks / num_ranks) {
      return BadShards(absl::StrCat("a mesh of ", ShapeToString(sizes)));
    }
    num_ranks *= sizes[i];
    const bool named = names.is(Kind::kTuple) &&
                       names.items().size() == sizes.size() &&
                       names.items()[i].is(Kind::kStr);
    mesh.axes.push_back(
        {named ? std::string(names.items()[i].text()) : absl::StrCat("dim", i),
         sizes[i]});
  }
  return mesh;
}

absl::StatusOr<Placement> ParsePlacement(const Value& value) {
  const absl::string_view name =
      value.is(Kind::kCall) ? value.callable().name() : "";
  if (name == "Replicate") return Placement();
  if (name == "Partial" || name == "_Partial") {
    return absl::UnimplementedError(
        "a DTensor with Partial placements is not supported");
  }
  const Value dim = ObjectAttribute(value, "dim");
  if ((name != "Shard" && name != "_StridedShard") || !dim.is(Kind::kInt) ||
      dim.int_value() < 0) {
    return BadShards(absl::StrCat("its placement is ", ToString(value, 60)));
  }
  if (name == "Shard") {
    return Placement{.kind = Placement::Kind::kShard, .dim = dim.int_value()};
  }
  const Value factor = ObjectAttribute(value, "split_factor");
  if (!factor.is(Kind::kInt) || factor.int_value() < 1 ||
      factor.int_value() > kMaxRanks) {
    return BadShards(
        absl::StrCat("its split factor is ", ToString(factor, 40)));
  }
  return Placement{.kind = Placement::Kind::kStridedShard,
                   .dim = dim.int_value(),
                   .split_factor = factor.int_value()};
}

absl::StatusOr<Placements> ParsePlacementList(const Value& value) {
  if (!value.is(Kind::kTuple) || value.items().size() > kMaxDims) {
    return BadShards(absl::StrCat("its placements are ", ToString(value, 60)));
  }
  Placements placements;
  for (const Value& item : value.items()) {
    DCP_ASSIGN_OR_RETURN(const Placement placement, ParsePlacement(item));
    placements.push_back(placement);
  }
  return placements;
}

// For each of this rank's boxes, where it begins in the local tensor, in which
// all boxes lie next to each other, sorted by offset.
std::vector<Dims> OffsetsInLocal(absl::Span<const Box> boxes) {
  std::vector<Dims> offsets(boxes.size());
  const size_t num_dims = boxes.empty() ? 0 : boxes[0].sizes.size();
  for (size_t d = 0; d < num_dims; ++d) {
    std::vector<std::pair<int64_t, int64_t>> ranges;  // offset, size
    for (const Box& box : boxes) {
      ranges.emplace_back(box.offsets[d], box.sizes[d]);
    }
    std::sort(ranges.begin(), ranges.end());
    ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
    absl::flat_hash_map<int64_t, int64_t> begins;  // by offset
    int64_t begin = 0;
    for (const auto& [offset, size] : ranges) {
      begins.emplace(offset, begin);
      begin += size;
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      offsets[i].push_back(begins.at(boxes[i].offsets[d]));
    }
  }
  return offsets;
}

// OK if the local tensor has exactly the elements of `boxes`, which begin at
// `offsets` in it.
absl::Status CheckLocalSizes(absl::Span<const Box> boxes,
                             absl::Span<const Dims> offsets,
                             const Dims& sizes) {
  int64_t volume = 0;
  bool fits = true;
  for (size_t i = 0; i < boxes.size() && fits; ++i) {
    fits = boxes[i].sizes.size() == sizes.size() &&
           Contains(WholeBox(sizes), {offsets[i], boxes[i].sizes});
    volume += Volume(boxes[i].sizes);
  }
  if (fits && volume == Volume(sizes)) return absl::OkStatus();
  constexpr size_t kMaxShown = 4;
  return BadShards(
      absl::StrCat("this rank's tensor has shape ", ShapeToString(sizes),
                   ", but its placements give it ",
                   absl::StrJoin(boxes.subspan(0, kMaxShown), ", ",
                                 [](std::string* out, const Box& box) {
                                   absl::StrAppend(out, ToString(box));
                                 }),
                   boxes.size() > kMaxShown ? ", ..." : ""));
}

// The facts about the whole tensor that both kinds have.
absl::StatusOr<RankTensor> ParseWhole(const Wrapper& wrapper) {
  RankTensor result;
  const Value& type = wrapper.args[1];
  const std::optional<DType> dtype =
      type.is(Kind::kGlobal) && type.module() == "torch"
          ? DTypeFromTorchName(type.name())
          : std::nullopt;
  if (!dtype.has_value()) {
    return BadShards(
        absl::StrCat("its dtype is unknown: ", ToString(type, 40)));
  }
  result.dtype = *dtype;
  DCP_ASSIGN_OR_RETURN(result.shape,
                       ParseTensorSizes(wrapper.args[2], "its size"));
  if (!CheckedVolume(result.shape).has_value()) {
    return BadShards(absl::StrCat("its shape ", ShapeToString(result.shape),
                                  " is too large"));
  }
  return result;
}

// OK if a piece has the whole tensor's type.
absl::Status CheckDType(const RankTensor& whole, const TorchTensor& piece) {
  if (piece.dtype == whole.dtype) return absl::OkStatus();
  return BadShards(absl::StrCat("this rank's tensor is ",
                                TorchName(piece.dtype), ", but the whole is ",
                                TorchName(whole.dtype)));
}

absl::StatusOr<RankTensor> ParseDTensor(const Wrapper& wrapper) {
  DCP_ASSIGN_OR_RETURN(RankTensor result, ParseWhole(wrapper));
  const Value local = AttributeInState(wrapper.state, "_local_tensor");
  if (IsRankTensor(local)) {
    return absl::UnimplementedError(
        "a DTensor with a local tensor that is itself a DTensor or "
        "ShardedTensor is not supported");
  }
  const Value spec = AttributeInState(wrapper.state, "_spec");
  const Value device_mesh = ObjectAttribute(spec, "mesh");
  DCP_ASSIGN_OR_RETURN(const Mesh mesh, ParseDeviceMesh(device_mesh));
  result.mesh = ToString(mesh);
  DCP_ASSIGN_OR_RETURN(const Placements placements,
                       ParsePlacementList(ObjectAttribute(spec, "placements")));
  result.placements = ToString(placements);
  const Value coordinate = ObjectAttribute(device_mesh, "_coordinate_on_dim");
  if (coordinate.is_none()) return result;  // this rank is not in the mesh
  DCP_ASSIGN_OR_RETURN(const Dims where,
                       ParseInts(coordinate, "its place in the mesh"));
  for (size_t i = 0; i < where.size(); ++i) {
    if (where.size() == mesh.axes.size() && where[i] >= 0 &&
        where[i] < mesh.axes[i].size) {
      continue;
    }
    return BadShards(absl::StrCat("its place ", ShapeToString(where),
                                  " is not in the mesh ", result.mesh));
  }
  absl::StatusOr<std::vector<Box>> boxes =
      LocalBoxes(result.shape, mesh, placements, where);
  if (!boxes.ok()) return BadShards(boxes.status().message());
  DCP_ASSIGN_OR_RETURN(const TorchTensor tensor, ParseTensor(local));
  DCP_RETURN_IF_ERROR(CheckDType(result, tensor));
  std::vector<Dims> offsets = OffsetsInLocal(*boxes);
  DCP_RETURN_IF_ERROR(CheckLocalSizes(*boxes, offsets, tensor.sizes));
  for (size_t i = 0; i < boxes->size(); ++i) {
    if (Volume((*boxes)[i].sizes) == 0) continue;
    result.pieces.push_back({.box = std::move((*boxes)[i]),
                             .tensor = local,
                             .offsets = std::move(offsets[i])});
  }
  return result;
}

absl::StatusOr<RankTensor::Piece> ParseShard(const Value& shard,
                                             const RankTensor& whole) {
  RankTensor::Piece piece;
  piece.tensor = ObjectAttribute(shard, "tensor");
  const Value metadata = ObjectAttribute(shard, "metadata");
  DCP_ASSIGN_OR_RETURN(
      piece.box.offsets,
      ParseInts(ObjectAttribute(metadata, "shard_offsets"), "shard_offsets"));
  DCP_ASSIGN_OR_RETURN(
      piece.box.sizes,
      ParseInts(ObjectAttribute(metadata, "shard_sizes"), "shard_sizes"));
  DCP_ASSIGN_OR_RETURN(const TorchTensor tensor, ParseTensor(piece.tensor));
  DCP_RETURN_IF_ERROR(CheckDType(whole, tensor));
  if (tensor.sizes != piece.box.sizes) {
    return BadShards(absl::StrCat(
        "a shard of shape ", ShapeToString(tensor.sizes),
        " is recorded with shape ", ShapeToString(piece.box.sizes)));
  }
  if (piece.box.offsets.size() != whole.shape.size() ||
      piece.box.sizes.size() != whole.shape.size() ||
      !Contains(WholeBox(whole.shape), piece.box)) {
    return BadShards(
        absl::StrCat("a shard of shape ", ShapeToString(piece.box.sizes),
                     " at ", ShapeToString(piece.box.offsets),
                     " is not inside shape ", ShapeToString(whole.shape)));
  }
  piece.offsets.assign(whole.shape.size(), 0);
  return piece;
}

// The state: (local shards, metadata, process group's state, sharding spec,
// ...)
absl::StatusOr<RankTensor> ParseShardedTensor(const Wrapper& wrapper) {
  DCP_ASSIGN_OR_RETURN(RankTensor result, ParseWhole(wrapper));
  if (!wrapper.state.is(Kind::kTuple) || wrapper.state.items().size() < 3 ||
      !wrapper.state.items()[0].is(Kind::kList)) {
    return BadShards("the ShardedTensor has no list of shards");
  }
  for (const Value& shard : wrapper.state.items()[0].items()) {
    DCP_ASSIGN_OR_RETURN(RankTensor::Piece piece, ParseShard(shard, result));
    if (Volume(piece.box.sizes) > 0) result.pieces.push_back(std::move(piece));
  }
  const Value group = wrapper.state.items()[2];
  const Value world_size = ObjectAttribute(group, "global_world_size");
  const Value rank = ObjectAttribute(group, "global_rank");
  if (world_size.is(Kind::kInt)) result.world_size = world_size.int_value();
  if (rank.is(Kind::kInt)) result.rank = rank.int_value();
  return result;
}

}  // namespace

bool IsRankTensor(const Value& value) { return FindWrapper(value).has_value(); }

absl::StatusOr<RankTensor> ParseRankTensor(const Value& value) {
  const std::optional<Wrapper> wrapper = FindWrapper(value);
  if (!wrapper.has_value()) {
    return BadShards(absl::StrCat("expected one, found ", ToString(value, 60)));
  }
  return IsDTensorClass(wrapper->type) ? ParseDTensor(*wrapper)
                                       : ParseShardedTensor(*wrapper);
}

}  // namespace dcp
