// SPDX-License-Identifier: Apache-2.0
// Every pair of placements that fits a mesh, against a reference without
// communication: each rank builds the whole tensor and takes the indices that
// dcp::LocalBoxes names.

#include "fsdp/mesh/redistribute.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using testing::RunRanks;
using testing::ThrownMessage;

DTensorSpec MakeSpec(const DeviceMesh& mesh, const Placements& placements,
                     const std::vector<int64_t>& shape) {
  return {.mesh = mesh,
          .placements = placements,
          .shape = shape,
          .stride = at::arange(1).expand(shape).contiguous().strides().vec()};
}

// Keeps the indices that this rank holds in each dimension.
at::Tensor CutByBoxes(at::Tensor whole, const DTensorSpec& spec) {
  std::vector<std::set<int64_t>> held(spec.shape.size());
  for (const dcp::Box& box : spec.local_boxes()) {
    for (size_t d = 0; d < held.size(); ++d) {
      for (int64_t i = 0; i < box.sizes[d]; ++i) {
        held[d].insert(box.offsets[d] + i);
      }
    }
  }
  for (size_t d = 0; d < held.size(); ++d) {
    const std::vector<int64_t> indices(held[d].begin(), held[d].end());
    whole = whole.index_select(static_cast<int64_t>(d),
                               at::tensor(indices, at::kLong));
  }
  return whole;
}

// The contribution from the rank at `coordinate`: differs only along Partial
// axes.
at::Tensor Contribution(const DTensorSpec& spec,
                        const std::vector<int64_t>& coordinate) {
  int64_t numel = 1;
  for (const int64_t size : spec.shape) numel *= size;
  at::Tensor whole = at::arange(numel, at::kDouble).view(spec.shape);
  int64_t weight = 1;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    weight *= 7;
    if (!spec.placements[axis].is_partial()) continue;
    whole = whole + weight * (coordinate[axis] + 1);
  }
  return whole;
}

// The whole value: contributions reduced over the Partial axes.
at::Tensor WholeValue(const DTensorSpec& spec, std::vector<int64_t> coordinate,
                      size_t axis = 0) {
  if (axis == spec.placements.size()) return Contribution(spec, coordinate);
  if (!spec.placements[axis].is_partial()) {
    return WholeValue(spec, coordinate, axis + 1);
  }
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < spec.mesh.size(static_cast<int64_t>(axis)); ++i) {
    coordinate[axis] = i;
    parts.push_back(WholeValue(spec, coordinate, axis + 1));
  }
  const at::Tensor all = at::stack(parts);
  switch (spec.placements[axis].reduce_op()) {
    case ReduceOp::kSum:
      return all.sum(0);
    case ReduceOp::kAvg:
      return all.mean(0);
    case ReduceOp::kMax:
      return all.amax({0});
    case ReduceOp::kMin:
      return all.amin({0});
  }
  return all;
}

void CheckPair(const DeviceMesh& mesh, const std::vector<int64_t>& shape,
               const Placements& from, const Placements& to) {
  const DTensorSpec src = MakeSpec(mesh, from, shape);
  const DTensorSpec dst = MakeSpec(mesh, to, shape);
  SCOPED_TRACE(to_string(from) + " to " + to_string(to) + " of shape " +
               dcp::ShapeToString(shape) + " on " + to_string(mesh));
  const std::vector<int64_t> coordinate = *mesh.get_coordinate();
  const DTensor tensor(
      CutByBoxes(Contribution(src, coordinate), src).reshape(src.local_shape()),
      src);
  const at::Tensor moved = tensor.redistribute(to).to_local();
  const at::Tensor expected =
      CutByBoxes(WholeValue(src, coordinate), dst).reshape(dst.local_shape());
  ASSERT_EQ(moved.sizes(), expected.sizes());
  ASSERT_TRUE(moved.allclose(expected)) << moved << "\nnot\n" << expected;
  ASSERT_TRUE(moved.is_contiguous());
}

const std::vector<std::vector<int64_t>>& Shapes() {
  static const std::vector<std::vector<int64_t>> shapes = {
      {8, 12},    // even for every axis
      {7, 5},     // uneven
      {1, 3, 2},  // ranks without rows
      {0, 4},     // nothing at all
      {13, 1},
  };
  return shapes;
}

const std::vector<Placement>& Targets() {
  static const std::vector<Placement> targets = {
      Replicate(), Shard(0), Shard(1), StridedShard(0, 2), StridedShard(1, 3)};
  return targets;
}

std::vector<Placement> Sources() {
  std::vector<Placement> sources = Targets();
  sources.push_back(Partial());
  return sources;
}

void CheckAllPairs1D(int world_size) {
  RunRanks(world_size, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()});
    std::vector<Placement> sources = Sources();
    for (const ReduceOp op : {ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      sources.push_back(Partial(op));
    }
    for (const auto& shape : Shapes()) {
      for (const Placement& from : sources) {
        for (const Placement& to : Targets()) {
          CheckPair(mesh, shape, {from}, {to});
        }
      }
    }
  });
}

TEST(Redistribute, EveryPairOnOneRank) { CheckAllPairs1D(1); }
TEST(Redistribute, EveryPairOnTwoRanks) { CheckAllPairs1D(2); }
TEST(Redistribute, EveryPairOnThreeRanks) { CheckAllPairs1D(3); }
TEST(Redistribute, EveryPairOnFourRanks) { CheckAllPairs1D(4); }

std::vector<Placements> AllPairs(const std::vector<Placement>& kinds) {
  std::vector<Placements> pairs;
  for (const Placement& first : kinds) {
    for (const Placement& second : kinds) pairs.push_back({first, second});
  }
  return pairs;
}

void CheckAllPairs2D(const std::vector<int64_t>& mesh_shape) {
  RunRanks(static_cast<int>(mesh_shape[0] * mesh_shape[1]), [&mesh_shape] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", mesh_shape, {"dp", "tp"});
    for (const auto& shape : {Shapes()[0], Shapes()[1], Shapes()[2]}) {
      for (const Placements& from : AllPairs(Sources())) {
        for (const Placements& to : AllPairs(Targets())) {
          CheckPair(mesh, shape, from, to);
        }
      }
    }
  });
}

TEST(Redistribute, EveryPairOnTwoByTwo) { CheckAllPairs2D({2, 2}); }
TEST(Redistribute, EveryPairOnThreeByOne) { CheckAllPairs2D({3, 1}); }
TEST(Redistribute, EveryPairOnOneByTwo) { CheckAllPairs2D({1, 2}); }

TEST(Redistribute, MovesTypesThatTheBackendCannotSend) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    for (const at::ScalarType dtype :
         {at::kBFloat16, at::kHalf, at::kFloat8_e4m3fn, at::kShort, at::kBool,
          at::kComplexFloat}) {
      const at::Tensor whole = at::arange(6).view({3, 2}).to(dtype);
      const DTensor tensor =
          distribute_tensor(whole, mesh, {Shard(0)}).redistribute({Shard(1)});
      EXPECT_EQ(tensor.scalar_type(), dtype);
      const at::Tensor result = tensor.full_tensor();
      EXPECT_TRUE(result.view(at::kByte).equal(whole.view(at::kByte))) << dtype;
    }
  });
}

TEST(Redistribute, LeavesTheSourceAlone) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor local = at::arange(4, at::kFloat).requires_grad_();
    const DTensor tensor = DTensor::from_local(local, mesh, {Partial()});
    const at::Tensor sum = tensor.redistribute({Replicate()}).to_local();
    EXPECT_TRUE(sum.equal(at::arange(4, at::kFloat) * 2));
    EXPECT_FALSE(sum.requires_grad());
    EXPECT_TRUE(local.equal(at::arange(4, at::kFloat)));
    EXPECT_TRUE(tensor.redistribute({Partial()}).to_local().is_same(local));
  });
}

TEST(Redistribute, RefusesPartialTargetsAndReductionsThatDoNotCommute) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const at::Tensor local = at::arange(4);
    const Placements whole = {Replicate(), Replicate()};
    const DTensor replicated = DTensor::from_local(local, mesh, whole);
    EXPECT_THAT(ThrownMessage([&] {
                  replicated.redistribute({Replicate(), Partial()});
                }),
                HasSubstr("cannot become Partial on axis 1"));
    EXPECT_THAT(ThrownMessage([&] { replicated.redistribute({Replicate()}); }),
                HasSubstr("1 placements"));
    EXPECT_THROW(replicated.redistribute({Shard(1), Replicate()}),
                 c10::IndexError);
    const DTensor mixed = DTensor::from_local(
        local, mesh, {Partial(ReduceOp::kMax), Partial(ReduceOp::kSum)});
    EXPECT_THROW(mixed.redistribute(whole), c10::NotImplementedError);
    const DTensor average = DTensor::from_local(
        local, mesh, {Partial(ReduceOp::kAvg), Replicate()});
    EXPECT_THROW(average.redistribute(whole), c10::NotImplementedError);
    // The mesh still works.
    EXPECT_TRUE(DTensor::from_local(local, mesh, {Partial(), Replicate()})
                    .full_tensor()
                    .equal(local * 2));
  });
}

TEST(AxisCut, StridedShardHasAPieceForEachSplit) {
  const AxisCut cut = MakeAxisCut(9, StridedShard(0, 2), 4);
  EXPECT_EQ(cut.lengths, (std::vector<int64_t>{3, 3, 2, 1}));
  EXPECT_EQ(cut.max_length, 3);
  ASSERT_EQ(cut.pieces[0].size(), 2);
  EXPECT_EQ(cut.pieces[0][1].begin, 5);
  ASSERT_EQ(cut.pieces[3].size(), 1);
  EXPECT_EQ(cut.pieces[3][0].begin, 8);
}

}  // namespace
}  // namespace fsdp
