// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/parallel_dims.h"

#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using testing::RunRanks;
using testing::ThrownMessage;
using ::testing::UnorderedElementsAre;

TEST(ParallelDegrees, DataParallelismTakesTheRemainingRanks) {
  const ParallelDegrees degrees =
      ParallelDegrees{.dp_replicate = 2, .tp = 2}.resolved(8);
  EXPECT_EQ(degrees.dp_shard, 2);
  const ParallelDegrees given =
      ParallelDegrees{.dp_replicate = 2, .dp_shard = 2, .tp = 2}.resolved(8);
  EXPECT_EQ(given.dp_shard, 2);
  EXPECT_EQ(given.size("batch"), 4);
  EXPECT_EQ(given.size("cp"), 1);
}

TEST(ParallelDegrees, RefusesDegreesThatDoNotFit) {
  const auto error = [](const ParallelDegrees& degrees, int64_t ranks) {
    EXPECT_THROW(degrees.resolved(ranks), c10::ValueError);
    return ThrownMessage([&] { degrees.resolved(ranks); });
  };
  EXPECT_THAT(error({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 10),
              HasSubstr("pp(1) * dp_replicate(2) * dp_shard(2) * cp(1) * tp(2) "
                        "!= number of ranks(10)"));
  // The remainder for dp_shard is zero, or not a whole number.
  EXPECT_THAT(error({.tp = 4}, 2), HasSubstr("dp_shard(0)"));
  EXPECT_THAT(error({.tp = 3}, 8), HasSubstr("dp_shard(2)"));
  EXPECT_THAT(error({.tp = 4, .ep = 2, .etp = 2}, 8),
              HasSubstr("etp is 2, but must be 1 or tp(4)"));
  EXPECT_THAT(error({.dp_replicate = 0}, 1), HasSubstr("dp_replicate is 0"));
  EXPECT_THAT(error({.etp = 0}, 1), HasSubstr("etp is 0"));
  EXPECT_THAT(error({.dp_shard = 0}, 1), HasSubstr("dp_shard is 0"));
  EXPECT_THAT(error({.dp_shard = -2}, 1), HasSubstr("dp_shard is -2"));
  EXPECT_THAT(error({.dp_replicate = 2, .dp_shard = 2, .ep = 3}, 4),
              HasSubstr("dp_shard(2) * cp(1) * tp(1) is not divisible by "
                        "ep(3) * etp(1)"));
  EXPECT_THAT(error({.tp = 2, .ep = 4, .etp = 2}, 4),
              HasSubstr("dp_shard(2) * cp(1) * tp(2) is not divisible by "
                        "ep(4) * etp(2)"));
}

TEST(ParallelDegrees, AnAxisIsEnabledWithSeveralRanks) {
  const auto enabled = [](const ParallelDegrees& degrees) {
    std::vector<std::string> axes;
    for (const char* axis : {"pp", "batch", "loss", "dp_replicate", "fsdp",
                             "cp", "tp", "ep", "efsdp", "etp"}) {
      if (degrees.enabled(axis)) axes.emplace_back(axis);
    }
    return axes;
  };
  EXPECT_THAT(
      enabled(ParallelDegrees{.dp_replicate = 2, .dp_shard = 2, .tp = 2}),
      ElementsAre("batch", "loss", "dp_replicate", "fsdp", "tp"));
  // Context parallelism shards parameters, and divides sequences, not batches.
  EXPECT_THAT(enabled(ParallelDegrees{.dp_shard = 1, .cp = 2}),
              ElementsAre("loss", "fsdp", "cp"));
  // Experts are sharded apart, even over one rank.
  EXPECT_THAT(enabled(ParallelDegrees{.dp_shard = 2, .ep = 2}),
              ElementsAre("batch", "loss", "fsdp", "ep", "efsdp"));
  EXPECT_THAT(enabled(ParallelDegrees{.pp = 2, .dp_shard = 1}),
              ElementsAre("pp"));
  EXPECT_THAT(enabled(ParallelDegrees{.dp_shard = 1}), IsEmpty());
}

TEST(ParallelDegrees, ComputesDerivedNumbers) {
  EXPECT_EQ((ParallelDegrees{.dp_replicate = 2, .dp_shard = 3, .cp = 2}
                 .fsdp_gradient_divide_factor()),
            12);
  EXPECT_EQ((ParallelDegrees{
                .pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 3}
                 .non_data_parallel_size()),
            12);
  EXPECT_EQ(
      (ParallelDegrees{.dp_shard = 1, .cp = 2, .tp = 4}.seq_len_divisor()), 16);
  EXPECT_THAT(ThrownMessage([] { (void)ParallelDegrees{}.size("dp"); }),
              HasSubstr("there is no axis \"dp\", only pp, batch"));
}

TEST(ParallelDims, HasNoMeshesOnOneRank) {
  const ParallelDims dims = init_parallel_dims({}, "cpu");
  EXPECT_EQ(dims.world_mesh().size(), 1);
  EXPECT_THAT(dims.get_all_one_dimensional_meshes(), IsEmpty());
  EXPECT_FALSE(dims.get_optional_mesh("tp").has_value());
  EXPECT_FALSE(dims.get_optional_mesh({"dp_replicate", "fsdp"}).has_value());
  EXPECT_THAT(ThrownMessage([&] { dims.get_mesh("fsdp"); }),
              HasSubstr("there is no mesh of fsdp"));
  EXPECT_THROW(dims.get_mesh("nothing"), c10::ValueError);
  EXPECT_THROW(dims.get_optional_mesh("nothing"), c10::ValueError);
  destroy_process_group();
}

TEST(ParallelDims, HasMeshesOnEightRanks) {
  RunRanks(8, [] {
    const ParallelDims dims =
        init_parallel_dims({.dp_replicate = 2, .tp = 2}, "cpu");
    const int64_t rank = get_rank();
    EXPECT_EQ(dims.degrees().dp_shard, 2);
    EXPECT_THAT(
        dims.get_all_one_dimensional_meshes(),
        UnorderedElementsAre(Key("dp_replicate"), Key("fsdp"), Key("tp"),
                             Key("batch"), Key("loss"), Key("efsdp")));
    const DeviceMesh hsdp = dims.get_mesh({"dp_replicate", "fsdp"});
    EXPECT_THAT(hsdp.shape(), ElementsAre(2, 2));
    EXPECT_THAT(hsdp.ranks(), ElementsAre(rank % 2, rank % 2 + 2, rank % 2 + 4,
                                          rank % 2 + 6));
    EXPECT_EQ(dims.get_mesh("batch").size(), 4);
    EXPECT_EQ(dims.get_mesh("batch").get_local_rank(), rank / 2);
    EXPECT_EQ(dims.get_mesh("loss").size(), 4);
    EXPECT_EQ(dims.get_mesh("tp").ranks()[0], rank / 2 * 2);
    EXPECT_FALSE(dims.get_optional_mesh({"dp_replicate", "efsdp"}).has_value());
    EXPECT_FALSE(dims.get_optional_mesh({"ep", "etp"}).has_value());
    EXPECT_FALSE(dims.get_optional_mesh("cp").has_value());
    EXPECT_THROW(dims.get_mesh({"batch", "fsdp"}), c10::ValueError);
    // The mesh for FSDP over tensor parallelism.
    EXPECT_THAT(dims.get_mesh("fsdp").concatenate(dims.get_mesh("tp")).ranks(),
                ElementsAre(rank / 4 * 4, rank / 4 * 4 + 1, rank / 4 * 4 + 2,
                            rank / 4 * 4 + 3));
  });
}

TEST(ParallelDims, ExpertsDivideTheSameRanks) {
  RunRanks(8, [] {
    const ParallelDims dims = init_parallel_dims({.tp = 2, .ep = 4}, "cpu");
    const int64_t rank = get_rank();
    const DeviceMesh sparse = dims.get_mesh({"efsdp", "ep"});
    EXPECT_THAT(sparse.shape(), ElementsAre(2, 4));
    EXPECT_EQ(sparse.get_local_rank("ep"), rank % 4);
    EXPECT_EQ(dims.get_mesh("fsdp").get_local_rank(), rank / 2);
    EXPECT_EQ(dims.get_mesh("efsdp").ranks()[1], rank % 4 + 4);
    EXPECT_FALSE(dims.get_optional_mesh("etp").has_value());
    // One root, on which the two overlap.
    EXPECT_THAT(ThrownMessage([&] {
                  dims.get_mesh("fsdp").concatenate(dims.get_mesh("ep"));
                }),
                HasSubstr("overlap"));
    EXPECT_EQ(sparse.root(), dims.world_mesh());
  });
}

TEST(ParallelDims, MakesGroupsOfEqualRanksOnce) {
  RunRanks(4, [] {
    const ParallelDims dims =
        init_parallel_dims({.tp = 2, .ep = 2, .etp = 2}, "cpu");
    const auto group = [&](const char* axis) {
      return dims.get_mesh(axis).get_group();
    };
    EXPECT_EQ(group("etp"), group("tp"));
    EXPECT_EQ(group("batch"), group("fsdp"));
    EXPECT_EQ(group("loss"), group("fsdp"));
    EXPECT_EQ(group("ep"), group("fsdp"));
    EXPECT_NE(group("tp"), group("fsdp"));
    const DeviceMesh view = dims.world_mesh().unflatten({1, 4}, {"a", "b"});
    EXPECT_EQ(view.get_group("b"), world_group());
    EXPECT_EQ(view.get_group("a"),
              dims.get_mesh({"efsdp", "ep"}).get_group("efsdp"));
  });
}

}  // namespace
}  // namespace fsdp
