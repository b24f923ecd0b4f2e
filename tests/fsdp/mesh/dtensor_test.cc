// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/dtensor.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linalg_vector_norm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::ThrownMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor Numbers(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return at::arange(numel, at::kFloat).view(shape) - 3;
}

TEST(DTensor, DistributeCutsAsChunkDoes) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = Numbers({5, 2});
    const DTensor tensor = distribute_tensor(whole, mesh, {Shard(-2)});
    EXPECT_EQ(tensor.placements()[0], Shard(0));
    EXPECT_THAT(tensor.shape(), ElementsAre(5, 2));
    EXPECT_THAT(tensor.spec().stride, ElementsAre(2, 1));
    EXPECT_EQ(tensor.numel(), 10);
    EXPECT_TRUE(tensor.to_local().equal(whole.chunk(3)[get_rank()]));
    EXPECT_TRUE(tensor.full_tensor().equal(whole));
  });
}

TEST(DTensor, EmptyShardKeepsTheOtherSizes) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    const DTensor tensor = distribute_tensor(Numbers({5, 2}), mesh, {Shard(0)});
    EXPECT_EQ(tensor.to_local().size(0), get_rank() == 3   ? 0
                                         : get_rank() == 2 ? 1
                                                           : 2);
    EXPECT_EQ(tensor.to_local().size(1), 2);
    const std::vector<dcp::Box> boxes = tensor.spec().local_boxes();
    ASSERT_EQ(boxes.size(), 1);
    EXPECT_EQ(dcp::Volume(boxes[0].sizes), tensor.to_local().numel());
  });
}

// Only the tensors on each axis's rank 0 count.
TEST(DTensor, DistributeTakesTheFirstRanksValues) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const at::Tensor whole = Numbers({5, 3});
    const std::vector<Placements> cases = {{},
                                           {Replicate(), Shard(0)},
                                           {Shard(1), Shard(0)},
                                           {Shard(0), Shard(0)},
                                           {StridedShard(0, 2), Shard(0)},
                                           {Shard(1), Replicate()}};
    for (const Placements& placements : cases) {
      const at::Tensor mine = whole + 100 * get_rank();
      const DTensor tensor = distribute_tensor(mine, mesh, placements);
      EXPECT_TRUE(tensor.full_tensor().equal(whole)) << tensor;
      const DTensor last = distribute_tensor(mine, mesh, placements, 1);
      EXPECT_TRUE(last.full_tensor().equal(whole + 300)) << last;
      const DTensor own = distribute_tensor(mine, mesh, placements, {});
      EXPECT_TRUE(distribute_tensor(whole, mesh, placements)
                      .to_local()
                      .equal(own.to_local() - 100 * get_rank()))
          << own;
    }
  });
}

TEST(DTensor, DistributeKeepsRequiresGradAndRefusesResults) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor leaf = at::ones({4}).requires_grad_();
    const DTensor tensor = distribute_tensor(leaf, mesh, {Shard(0)});
    EXPECT_TRUE(tensor.to_local().requires_grad());
    EXPECT_TRUE(tensor.to_local().is_leaf());
    EXPECT_THAT(
        ThrownMessage([&] { distribute_tensor(leaf * 2, mesh, {Shard(0)}); }),
        HasSubstr("not a leaf"));
    EXPECT_THAT(
        ThrownMessage([&] { distribute_tensor(leaf, mesh, {Partial()}); }),
        HasSubstr("not made Partial"));
    EXPECT_THROW(distribute_tensor(leaf, mesh, {Shard(0)}, 2), c10::ValueError);
    EXPECT_THROW(distribute_tensor(leaf, mesh, {Shard(1)}), c10::IndexError);
    EXPECT_THROW(distribute_tensor(leaf, mesh, {Shard(0), Shard(0)}),
                 c10::ValueError);
  });
}

TEST(DTensor, FromLocalInfersEvenShards) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const at::Tensor local = at::ones({3, 2});
    const DTensor tensor =
        DTensor::from_local(local, mesh, {Shard(0), Shard(1)});
    EXPECT_THAT(tensor.shape(), ElementsAre(6, 4));
    EXPECT_THAT(tensor.spec().stride, ElementsAre(4, 1));
    EXPECT_TRUE(tensor.to_local().is_same(local));
  });
}

TEST(DTensor, FromLocalOfUnevenShardsNeedsTheShape) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor whole = Numbers({3, 2});
    const at::Tensor local = whole.chunk(2)[get_rank()];
    const DTensor tensor = DTensor::from_local(
        local, mesh, {Shard(0)}, /*run_check=*/true, std::vector<int64_t>{3, 2},
        std::vector<int64_t>{2, 1});
    EXPECT_TRUE(tensor.full_tensor().equal(whole));
    EXPECT_THAT(ThrownMessage([&] {
                  DTensor::from_local(local, mesh, {Shard(0)}, false,
                                      std::vector<int64_t>{3, 2});
                }),
                HasSubstr("shape and stride"));
    // Inferred from their parts, the shapes differ between ranks: 4 rows and 2.
    EXPECT_THAT(ThrownMessage([&] {
                  DTensor::from_local(local, mesh, {Shard(0)}, true);
                }),
                HasSubstr("differ in the shape of the whole"));
    // The call is wrong on one rank only, but all ranks get an error.
    EXPECT_THAT(ThrownMessage([&] {
                  DTensor::from_local(
                      get_rank() == 0 ? local : at::ones({3, 2}), mesh,
                      {Shard(0)}, true, std::vector<int64_t>{3, 2},
                      std::vector<int64_t>{2, 1});
                }),
                HasSubstr(get_rank() == 0 ? "that of another rank does not"
                                          : "does not fit"));
    EXPECT_TRUE(tensor.full_tensor().equal(whole));
  });
}

TEST(DTensor, FromLocalWithCheckSpreadsTheFirstRanksValues) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor local = at::full({2}, 5.0F + get_rank());
    const DTensor unchecked = DTensor::from_local(local, mesh, {Replicate()});
    EXPECT_EQ(unchecked.to_local()[0].item<float>(), 5 + get_rank());
    const DTensor checked =
        DTensor::from_local(local, mesh, {Replicate()}, true);
    EXPECT_EQ(checked.to_local()[0].item<float>(), 5);
  });
}

TEST(DTensor, RefusesALocalTensorOfAnotherShape) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DTensor tensor = distribute_tensor(Numbers({4, 2}), mesh, {Shard(0)});
    EXPECT_THAT(ThrownMessage([&] {
                  tensor.with_local(at::ones({3, 2}));
                }),
                HasSubstr("has shape [3, 2]"));
    EXPECT_THAT(ThrownMessage([&] { tensor.with_local(at::Tensor()); }),
                HasSubstr("undefined"));
    const DTensor same = tensor.with_local(at::zeros({2, 2}));
    EXPECT_EQ(same.spec(), tensor.spec());
  });
}

TEST(DTensor, GradHasTheSpecOfTheParameter) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DTensor tensor =
        distribute_tensor(Numbers({3, 2}).requires_grad_(), mesh, {Shard(0)});
    EXPECT_FALSE(tensor.grad().has_value());
    (tensor.to_local() * (get_rank() + 1)).sum().backward();
    ASSERT_TRUE(tensor.grad().has_value());
    EXPECT_EQ(tensor.grad()->spec(), tensor.spec());
    EXPECT_EQ(tensor.grad()->full_tensor().sum().item<float>(), 4 + 2 * 2);
    const DTensor partial =
        DTensor::from_local(at::ones({2}).requires_grad_(), mesh, {Partial()});
    partial.to_local().sum().backward();
    EXPECT_EQ(partial.grad()->placements()[0], Replicate());
  });
}

TEST(DTensor, NormCountsEveryElementOnce) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const std::vector<Placements> cases = {
        {Replicate(), Replicate()}, {Replicate(), Shard(0)},
        {Shard(0), Replicate()},    {Shard(1), Shard(0)},
        {Shard(0), Shard(0)},       {StridedShard(0, 2), Shard(0)}};
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{5, 3}, std::vector<int64_t>{1, 4}}) {
      const at::Tensor whole = Numbers(shape);
      for (const Placements& placements : cases) {
        const DTensor tensor = distribute_tensor(whole, mesh, placements);
        for (const double p : {1.0, 2.0, 3.0, 0.5, kInfinity}) {
          const at::Tensor norm = tensor.norm(p);
          EXPECT_EQ(norm.dim(), 0);
          const double expected =
              at::linalg_vector_norm(whole, p).item<double>();
          EXPECT_NEAR(norm.item<double>(), expected, 1e-6 * expected)
              << tensor << " p " << p;
        }
      }
      const DTensor partial =
          DTensor::from_local(whole, mesh, {Partial(), Replicate()});
      EXPECT_NEAR(partial.norm().item<double>(),
                  2 * at::linalg_vector_norm(whole, 2).item<double>(), 1e-4);
    }
    const DTensor zero = distribute_tensor(at::zeros({0, 3}), mesh);
    EXPECT_EQ(zero.norm(kInfinity).item<double>(), 0);
    EXPECT_THROW(zero.norm(0), c10::ValueError);
    EXPECT_THROW(zero.norm(std::nan("")), c10::ValueError);
  });
}

TEST(DTensor, NormOfNarrowTypesDoesNotOverflow) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DTensor tensor = distribute_tensor(
        at::full({100}, 60000.0).to(at::kHalf), mesh, {Shard(0)});
    EXPECT_EQ(tensor.norm().scalar_type(), at::kFloat);
    EXPECT_NEAR(tensor.norm().item<double>(), 600000, 500);
    // 1e5 to the tenth power does not fit into a float.
    EXPECT_NEAR(distribute_tensor(at::full({2}, 1e5), mesh, {Shard(0)})
                    .norm(10)
                    .item<double>(),
                1e5 * std::pow(2, 0.1), 1);
  });
}

TEST(DTensor, NormSeesNanAnywhere) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    for (int64_t where = 0; where < 3; ++where) {
      at::Tensor whole = at::ones({3});
      whole[where] = NAN;
      const DTensor tensor = distribute_tensor(whole, mesh, {Shard(0)});
      EXPECT_TRUE(std::isnan(tensor.norm(kInfinity).item<double>())) << where;
      EXPECT_TRUE(std::isnan(tensor.norm(2).item<double>())) << where;
    }
  });
}

TEST(DTensor, PrintsShapesAndNoValues) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"shard"});
    const DTensor tensor = distribute_tensor(Numbers({4, 3}), mesh, {Shard(0)});
    EXPECT_EQ(to_string(tensor),
              "DTensor(local_tensor=[2, 3] float32 cpu, device_mesh=" +
                  to_string(mesh) + ", placements=(Shard(dim=0),))");
  });
}

}  // namespace
}  // namespace fsdp
