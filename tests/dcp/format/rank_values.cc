// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/format/rank_values.h"

#include "dcp/format/torch/torch_tensor.h"

namespace dcp::testing {
namespace {

constexpr char kPlacements[] = "torch.distributed.tensor.placement_types";
constexpr char kSharded[] = "torch.distributed._shard.sharded_tensor.api";

Value MakeIntList(ValueArena& arena, const Dims& ints) {
  return arena.List(MakeInts(arena, ints).items());
}

// The wrapper that _rebuild_from_type_v2 makes.
Value Wrap(ValueArena& arena, Value type, DType dtype, const Dims& shape,
           Value state) {
  const Value sizes = MakeInts(arena, shape);
  const Value args =
      arena.Tuple({type, arena.Global("torch", TorchName(dtype)), sizes, sizes,
                   Value::Int(0), Value(), Value(), Value::Bool(false)});
  return arena.Call(
      arena.Global("torch._tensor", "_rebuild_from_type_v2"),
      arena.Tuple({arena.Global("torch._utils", "_rebuild_wrapper_subclass"),
                   type, args, state}));
}

// The state for a class with slots.
Value Slots(ValueArena& arena, Value attributes) {
  return arena.Tuple({Value(), attributes});
}

}  // namespace

Value MakeInts(ValueArena& arena, const Dims& ints) {
  std::vector<Value> values;
  for (const int64_t number : ints) values.push_back(Value::Int(number));
  return arena.Tuple(values);
}

Value MakeObject(ValueArena& arena, absl::string_view module,
                 absl::string_view name,
                 const std::vector<std::pair<std::string, Value>>& attributes) {
  const Value object = arena.New(arena.Global(module, name), arena.Tuple({}));
  std::vector<Value> items;
  for (const auto& [key, value] : attributes) {
    items.push_back(arena.Str(key));
    items.push_back(value);
  }
  arena.SetState(object, arena.Dict(items));
  return object;
}

Value MakeShardedTensor(ValueArena& arena, const ShardedSpec& spec) {
  std::vector<Value> shards;
  if (!spec.key.empty()) {
    const Value metadata =
        MakeObject(arena, "torch.distributed._shard.metadata", "ShardMetadata",
                   {{"shard_offsets", MakeIntList(arena, spec.offsets)},
                    {"shard_sizes", MakeIntList(arena, spec.sizes)}});
    const Dims& sizes =
        spec.local_sizes.empty() ? spec.sizes : spec.local_sizes;
    const Value shard = arena.New(
        arena.Global("torch.distributed._shard.sharded_tensor.shard", "Shard"),
        arena.Tuple({}));
    arena.SetState(
        shard,
        Slots(arena,
              arena.Dict({arena.Str("tensor"),
                          MakeTensor(arena, spec.dtype, sizes, false, spec.key),
                          arena.Str("metadata"), metadata})));
    shards.push_back(shard);
  }
  const Value type = arena.Global(kSharded, "ShardedTensor");
  const Value group =
      MakeObject(arena, kSharded, "ShardedTensor.ProcessGroupState",
                 {{"global_rank", Value::Int(spec.rank)},
                  {"global_world_size", Value::Int(spec.world_size)}});
  return Wrap(arena, type, spec.dtype, spec.shape,
              arena.Tuple({arena.List(shards), Value(), group, Value(),
                           Value::Bool(true)}));
}

Value MakeMesh(ValueArena& arena, const Dims& mesh, const Dims& coordinate) {
  const Value sizes = MakeInts(arena, mesh);
  const Value layout =
      MakeObject(arena, "torch.distributed._mesh_layout", "_MeshLayout",
                 {{"shape", sizes}, {"stride", sizes}});
  return MakeObject(arena, "torch.distributed.device_mesh", "DeviceMesh",
                    {{"_layout", layout},
                     {"_coordinate_on_dim", MakeInts(arena, coordinate)}});
}

Value MakeDTensor(ValueArena& arena, const DTensorSpec& spec, Value local,
                  Value mesh) {
  const Value dtensor_spec = MakeObject(
      arena, "torch.distributed.tensor._dtensor_spec", "DTensorSpec",
      {{"mesh", mesh}, {"placements", arena.Tuple(spec.placements)}});
  const Value type = arena.Global("torch.distributed.tensor", "DTensor");
  return Wrap(arena, type, spec.dtype, spec.shape,
              Slots(arena, arena.Dict({arena.Str("_local_tensor"), local,
                                       arena.Str("_spec"), dtensor_spec})));
}

Value MakeDTensor(ValueArena& arena, const DTensorSpec& spec) {
  return MakeDTensor(arena, spec,
                     MakeTensor(arena, spec.dtype, spec.local, false, spec.key),
                     MakeMesh(arena, spec.mesh, spec.coordinate));
}

Value MakeShard(ValueArena& arena, int64_t dim) {
  return MakeObject(arena, kPlacements, "Shard", {{"dim", Value::Int(dim)}});
}

Value MakeReplicate(ValueArena& arena) {
  return MakeObject(arena, kPlacements, "Replicate", {});
}

Value MakeStridedShard(ValueArena& arena, int64_t dim, int64_t split_factor) {
  return MakeObject(
      arena, kPlacements, "_StridedShard",
      {{"dim", Value::Int(dim)}, {"split_factor", Value::Int(split_factor)}});
}

}  // namespace dcp::testing
