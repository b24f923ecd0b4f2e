// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/device_mesh.h"

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using testing::RunRanks;
using testing::ThrownMessage;

// The ranks that an all-reduce over `group` joins, as a sum of powers of ten.
int64_t GroupMembers(const ProcessGroup& group) {
  double own = 1;
  for (int64_t i = 0; i < get_rank(); ++i) own *= 10;
  std::vector<at::Tensor> tensors = {at::full({1}, own, at::kDouble)};
  WaitForWork(group->allreduce(tensors), *group, "members");
  return static_cast<int64_t>(tensors[0].item<double>());
}

TEST(DeviceMesh, OneAxis) {
  RunRanks(3, [] {
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"shard"});
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(mesh.ndim(), 1);
    EXPECT_EQ(mesh.size(), 3);
    EXPECT_THAT(mesh.ranks(), ElementsAre(0, 1, 2));
    EXPECT_EQ(mesh.get_rank(), get_rank());
    EXPECT_EQ(mesh.get_local_rank(), get_rank());
    EXPECT_THAT(mesh.get_coordinate(), Optional(ElementsAre(get_rank())));
    // An axis that spans the world is the default group.
    EXPECT_EQ(mesh.get_group(), world_group());
    EXPECT_EQ(mesh.get_group("shard"), world_group());
    EXPECT_EQ(mesh["shard"], mesh);
    EXPECT_EQ(mesh.root(), mesh);
    EXPECT_EQ(to_string(mesh), "DeviceMesh((shard=3,), 'cpu')");
    EXPECT_EQ(mesh.device(), c10::Device(c10::DeviceType::CPU));
  });
}

TEST(DeviceMesh, TwoAxesWithGroups) {
  RunRanks(4, [] {
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    const int64_t rank = get_rank();
    EXPECT_THAT(mesh.shape(), ElementsAre(2, 2));
    EXPECT_EQ(mesh.size(1), 2);
    EXPECT_THAT(mesh.get_coordinate(),
                Optional(ElementsAre(rank / 2, rank % 2)));
    EXPECT_EQ(mesh.get_local_rank("replicate"), rank / 2);
    EXPECT_EQ(mesh.get_local_rank(1), rank % 2);
    EXPECT_EQ(GroupMembers(mesh.get_group("shard")), rank < 2 ? 11 : 1100);
    EXPECT_EQ(GroupMembers(mesh.get_group("replicate")),
              rank % 2 == 0 ? 101 : 1010);
    EXPECT_EQ(mesh.get_all_groups().size(), 2);
    EXPECT_EQ(mesh.get_group(0), mesh.get_group("replicate"));
    EXPECT_THAT(describe(*mesh.get_group(1)), HasSubstr("group \"shard\""));
    EXPECT_EQ(dcp::ToString(mesh.to_dcp()), "replicate=2,shard=2");
    EXPECT_EQ(to_string(mesh), "DeviceMesh((replicate=2, shard=2), 'cpu')");
  });
}

TEST(DeviceMesh, SlicesShareGroups) {
  RunRanks(8, [] {
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
    const int64_t rank = get_rank();
    const DeviceMesh tp = mesh["tp"];
    EXPECT_EQ(tp.get_group(), mesh.get_group("tp"));
    EXPECT_THAT(tp.ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    EXPECT_EQ(tp.root(), mesh);

    const DeviceMesh outer = mesh[{"pp", "tp"}];
    EXPECT_THAT(outer.shape(), ElementsAre(2, 2));
    const int64_t dp = rank / 2 % 2 * 2;
    EXPECT_THAT(outer.ranks(), ElementsAre(dp, dp + 1, dp + 4, dp + 5));
    EXPECT_THAT(outer.get_coordinate(),
                Optional(ElementsAre(rank / 4, rank % 2)));
    EXPECT_EQ(outer["tp"], tp);
    EXPECT_EQ(outer.get_group("pp"), mesh.get_group("pp"));

    const DeviceMesh joined = mesh["dp"].concatenate(mesh["tp"]);
    EXPECT_EQ(joined, (mesh[{"dp", "tp"}]));
    const DeviceMesh swapped = mesh["tp"].concatenate(mesh["dp"]);
    const int64_t pp = rank / 4 * 4;
    EXPECT_THAT(swapped.ranks(), ElementsAre(pp, pp + 2, pp + 1, pp + 3));
    EXPECT_THAT(swapped.get_coordinate(),
                Optional(ElementsAre(rank % 2, rank / 2 % 2)));
    EXPECT_THROW(mesh["dp"].concatenate(mesh[{"dp", "tp"}]), c10::ValueError);

    EXPECT_THROW((mesh[{"tp", "dp"}]), c10::ValueError);
    EXPECT_THROW((mesh[{"dp", "dp"}]), c10::ValueError);
    EXPECT_THAT(ThrownMessage([&] { (void)mesh["cp"]; }),
                HasSubstr("no axis \"cp\", only pp, dp, tp"));
    EXPECT_THROW((void)mesh["cp"], c10::IndexError);
    EXPECT_THROW((void)tp["dp"], c10::IndexError);
  });
}

TEST(DeviceMesh, Flatten) {
  RunRanks(8, [] {
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "cp"});
    const int64_t rank = get_rank();
    const DeviceMesh flat = mesh[{"dp", "cp"}].flatten();
    EXPECT_THAT(flat.mesh_dim_names(), ElementsAre("dp_cp"));
    EXPECT_THAT(flat.shape(), ElementsAre(4));
    EXPECT_EQ(flat.get_local_rank(), rank % 4);
    EXPECT_EQ(GroupMembers(flat.get_group()), rank < 4 ? 1111 : 11110000);
    // The root remembers it, whichever slice asks.
    EXPECT_EQ(mesh["dp_cp"], flat);
    EXPECT_EQ((mesh[{"dp", "cp"}].flatten("dp_cp").get_group()),
              flat.get_group());
    const DeviceMesh outer = mesh[{"pp", "cp"}].flatten("outer");
    EXPECT_EQ(GroupMembers(outer.get_group()),
              rank / 2 % 2 == 0 ? 110011 : 11001100);
    EXPECT_EQ(mesh.flatten("all").get_group(), world_group());
    EXPECT_EQ(mesh["dp"].flatten("dp"), mesh["dp"]);
    EXPECT_EQ(mesh["dp"].flatten("data").get_group(), mesh.get_group("dp"));
    EXPECT_THROW((mesh[{"dp", "cp"}].flatten("pp")), c10::ValueError);
    EXPECT_THROW((mesh[{"pp", "dp"}].flatten("dp_cp")), c10::ValueError);
    EXPECT_THROW(flat.concatenate(mesh["cp"]), c10::ValueError);
    EXPECT_THAT(mesh["pp"].concatenate(flat).shape(), ElementsAre(2, 4));
  });
}

TEST(DeviceMesh, UnflattenedAxesAreViewsOfOneRoot) {
  RunRanks(8, [] {
    const DeviceMesh world = init_device_mesh("cpu", {8}, {"world"});
    const int64_t rank = get_rank();
    const DeviceMesh dense = world.unflatten({4, 2}, {"fsdp", "tp"});
    const DeviceMesh sparse = world.unflatten({2, 4}, {"efsdp", "ep"});
    EXPECT_EQ(dense.root(), world);
    EXPECT_EQ(GroupMembers(dense.get_group("tp")),
              (std::vector<int64_t>{11, 1100, 110000, 11000000})[rank / 2]);
    EXPECT_EQ(GroupMembers(sparse.get_group("ep")), rank < 4 ? 1111 : 11110000);
    EXPECT_EQ(sparse.get_local_rank("efsdp"), rank / 4);
    // One axis in a view, with places that are not adjacent.
    const DeviceMesh parts = dense["fsdp"].unflatten({2, 2}, {"outer", "dp"});
    EXPECT_THAT(parts["dp"].ranks(), ElementsAre(rank / 4 * 4 + rank % 2,
                                                 rank / 4 * 4 + rank % 2 + 2));
    EXPECT_EQ(parts.get_group("outer"), sparse.get_group("efsdp"));
    EXPECT_THAT(parts["dp"].concatenate(dense["tp"]).shape(),
                ElementsAre(2, 2));
    EXPECT_THROW(dense["fsdp"].concatenate(sparse["ep"]), c10::ValueError);

    EXPECT_THAT(ThrownMessage([&] {
                  world.unflatten({3, 2}, {"a", "b"});
                }),
                HasSubstr("(3, 2) has 6 ranks, but DeviceMesh((world=8,), "
                          "'cpu') has 8"));
    EXPECT_THROW(world.unflatten({4, 2}, {"a"}), c10::ValueError);
    EXPECT_THROW(dense.unflatten({4, 2}, {"a", "b"}), c10::Error);
    EXPECT_THAT(ThrownMessage([&] {
                  parts["outer"]
                      .concatenate(dense["tp"])
                      .flatten("apart")
                      .unflatten({2, 2}, {"a", "b"});
                }),
                HasSubstr("not equally far apart"));
  });
}

TEST(DeviceMesh, WithoutNames) {
  RunRanks(4, [] {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
    EXPECT_THAT(mesh.mesh_dim_names(), IsEmpty());
    EXPECT_EQ(to_string(mesh), "DeviceMesh((2, 2), 'cpu')");
    EXPECT_EQ(dcp::ToString(mesh.to_dcp()), "0=2,1=2");
    EXPECT_EQ(GroupMembers(mesh.get_group(1)), get_rank() < 2 ? 11 : 1100);
    EXPECT_THROW((void)mesh["shard"], c10::Error);
    EXPECT_THROW(mesh.get_group(), c10::Error);
    EXPECT_THROW(mesh.get_local_rank(), c10::Error);
    EXPECT_THROW(mesh.get_group(2), c10::IndexError);
    EXPECT_THROW((void)mesh.size(-1), c10::IndexError);
    EXPECT_THROW(mesh.flatten(), c10::Error);
    EXPECT_EQ(mesh.flatten("all").get_group(), world_group());
  });
}

TEST(DeviceMesh, FromOneGroup) {
  RunRanks(4, [] {
    init_process_group();
    const ProcessGroup group = new_subgroups({{0, 2}, {1, 3}}, "odd");
    const DeviceMesh mesh =
        DeviceMesh::from_group(group, c10::DeviceType::CPU, "shard");
    const DeviceMesh reference = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    EXPECT_EQ(mesh.ranks(), reference["a"].ranks());
    EXPECT_EQ(mesh.get_coordinate(), reference["a"].get_coordinate());
    EXPECT_EQ(mesh.get_group(), group);
    EXPECT_FALSE(mesh == reference["a"]);  // Other names.
    EXPECT_EQ(DeviceMesh::from_group(group, c10::DeviceType::CPU, "a"),
              reference["a"]);
    EXPECT_EQ(DeviceMesh::from_group(group, c10::DeviceType::CPU).size(), 2);
  });
}

TEST(DeviceMesh, FromSeveralGroups) {
  RunRanks(4, [] {
    const DeviceMesh reference = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const std::vector<ProcessGroup> groups = reference.get_all_groups();
    const auto from = [](const std::vector<ProcessGroup>& some,
                         const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& ranks,
                         const std::vector<std::string>& names) {
      return DeviceMesh::from_group(some, c10::DeviceType::CPU, shape, ranks,
                                    names);
    };
    const DeviceMesh mesh = from(groups, {2, 2}, {0, 1, 2, 3}, {"a", "b"});
    EXPECT_EQ(mesh, reference);
    EXPECT_EQ(mesh["b"].get_group(), groups[1]);
    EXPECT_THROW(from(groups, {2, 2}, {0, 1, 2, 3}, {}), c10::ValueError);
    EXPECT_THROW(from(groups, {4}, {0, 1, 2, 3}, {"a"}), c10::ValueError);
    EXPECT_THROW(from(groups, {2, 2}, {0, 1, 2}, {"a", "b"}), c10::ValueError);
    EXPECT_THROW(from(groups, {2, 2}, {0, 1, 2, 2}, {"a", "b"}),
                 c10::ValueError);
    EXPECT_THAT(
        ThrownMessage([&] {
          from({groups[1], groups[0]}, {2, 2}, {0, 1, 2, 3}, {"a", "b"});
        }),
        HasSubstr("axis \"a\" has ranks"));
  });
}

TEST(DeviceMesh, Validates) {
  EXPECT_THROW(init_device_mesh("cpu:0", {1}), c10::ValueError);
  EXPECT_THROW(init_device_mesh("cpu", {}), c10::ValueError);
  EXPECT_THROW(init_device_mesh("cpu", {0}), c10::ValueError);
  EXPECT_THROW(init_device_mesh("cpu", {1, 1}, {"a"}), c10::ValueError);
  EXPECT_THROW(init_device_mesh("cpu", {1, 1}, {"a", "a"}), c10::ValueError);
  EXPECT_THROW(init_device_mesh("cpu", {1}, {""}), c10::ValueError);
  EXPECT_THAT(ThrownMessage([] {
                init_device_mesh("cpu", {2, 2});
              }),
              HasSubstr("(2, 2) has 4 ranks, but the world has 1"));
  const DeviceMesh one = init_device_mesh("cpu", {1, 1}, {"a", "b"});
  EXPECT_EQ(GroupMembers(one.get_group("b")), 1);
  EXPECT_FALSE(one == one["a"]);
  destroy_process_group();
}

}  // namespace
}  // namespace fsdp
