// SPDX-License-Identifier: Apache-2.0

#include <string>

#include "absl/strings/str_cat.h"
#include "config/dialects/composer/composer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Reading ReadBlockOfFsdp1(absl::string_view options) {
  return ReadWith(&ReadComposer, "run.yaml", Syntax::kYaml,
                  absl::StrCat("precision: fp32\nfsdp_config:\n", options));
}

TEST(Composer, ReadsSizeListsAsMeshes) {
  const Reading hybrid = ReadBlockOfFsdp1(
      "  sharding_strategy: HYBRID_SHARD\n  device_mesh: [2, 4]\n");
  EXPECT_EQ(*hybrid.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*hybrid.config.mesh.data_parallel_shard_degree, 4);
  EXPECT_THAT(hybrid.findings,
              Contains(HasSubstr("is read as data_parallel_replicate_degree: 2 "
                                 "and data_parallel_shard_degree: 4")));
  const Reading shards = ReadBlockOfFsdp1("  device_mesh: [8]\n");
  EXPECT_EQ(*shards.config.mesh.data_parallel_replicate_degree, 1);
  EXPECT_EQ(*shards.config.mesh.data_parallel_shard_degree, 8);
  for (const char* other : {"[2, 2, 2]", "[0, 4]", "[a]", "mesh"}) {
    EXPECT_THAT(
        ReadBlockOfFsdp1(absl::StrCat("  device_mesh: ", other, "\n")).findings,
        Contains(HasSubstr("a mesh is an object of Python")));
  }
  EXPECT_THAT(ReadBlockOfFsdp1("  device_mesh: [2, 4]\n"
                               "  data_parallel_shard_degree: 4\n")
                  .findings,
              Contains(HasSubstr("keep only these")));
}

// Composer's Trainer finds no such block; a program may give it FSDP2Config.
TEST(Composer, ReportsBlocksThatTheTrainerIgnores) {
  EXPECT_THAT(ReadWith(&ReadComposer, "run.yaml", Syntax::kYaml,
                       "precision: fp32\nparallelism_config:\n"
                       "  fsdp2: {verbose: true}")
                  .findings,
              ElementsAre(HasSubstr(
                  "parallelism_config.fsdp2 is read as a block for FSDP2; "
                  "Composer's Trainer takes one from a map only under the name "
                  "fsdp, and with FSDP_VERSION=2")));
}

}  // namespace
}  // namespace fsdp::config
