// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/fields/fsdp1.h"

#include <optional>
#include <string>

#include "config/document/document.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

using ::testing::HasSubstr;

const SourceLocation kNowhere;

Findings ReadOptions(absl::string_view text) {
  Findings findings;
  const Node root = ParseDocument("f.yaml", text, Syntax::kYaml, findings);
  Section section(root, findings);
  ReadRemoved("fsdp_", section);
  section.Finish();
  return findings;
}

TrainConfig Apply(absl::string_view strategy, TrainConfig config = {}) {
  Findings findings;
  const ShardingStrategy* found = FindShardingStrategy(strategy);
  EXPECT_NE(found, nullptr) << strategy;
  ApplyShardingStrategy(*found, kNowhere, config, findings);
  EXPECT_EQ(findings.list().size(), 1u);
  EXPECT_FALSE(findings.has_problems());
  return config;
}

TEST(Fsdp1, FindsStrategiesByNameInAnyCaseAndByNumber) {
  for (const ShardingStrategy& strategy : AllShardingStrategies()) {
    EXPECT_EQ(FindShardingStrategy(strategy.name), &strategy);
    EXPECT_EQ(FindShardingStrategy(std::to_string(strategy.number)), &strategy);
  }
  ASSERT_NE(FindShardingStrategy("full_shard"), nullptr);
  EXPECT_EQ(FindShardingStrategy("full_shard")->number, 1);
  ASSERT_NE(FindShardingStrategy("_HYBRID_SHARD_ZERO2"), nullptr);
  EXPECT_EQ(FindShardingStrategy("_HYBRID_SHARD_ZERO2")->number, 5);
  EXPECT_EQ(FindShardingStrategy("FULL_SHRAD"), nullptr);
  EXPECT_EQ(FindShardingStrategy("0"), nullptr);
  EXPECT_EQ(FindShardingStrategy("6"), nullptr);
  EXPECT_EQ(FindShardingStrategy(""), nullptr);
}

TEST(Fsdp1, ShardingStrategyIsReshardAfterForward) {
  EXPECT_EQ(*Apply("FULL_SHARD").sharding.reshard_after_forward,
            ReshardSetting(true));
  EXPECT_EQ(*Apply("SHARD_GRAD_OP").sharding.reshard_after_forward,
            ReshardSetting(false));
  EXPECT_EQ(*Apply("HYBRID_SHARD").sharding.reshard_after_forward,
            ReshardSetting(true));
  EXPECT_EQ(*Apply("HYBRID_SHARD_ZERO2").sharding.reshard_after_forward,
            ReshardSetting(false));
}

TEST(Fsdp1, HybridStrategiesShardWithinAMachineByDefault) {
  EXPECT_EQ(*Apply("HYBRID_SHARD").mesh.data_parallel_shard_degree,
            kShardWithinNode);
  TrainConfig given;
  given.mesh.data_parallel_replicate_degree = 2;
  given.mesh.data_parallel_shard_degree = 4;
  given = Apply("HYBRID_SHARD", given);
  EXPECT_EQ(*given.mesh.data_parallel_shard_degree, 4);
  EXPECT_EQ(*given.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*Apply("FULL_SHARD").mesh.data_parallel_shard_degree,
            kShardOverRest);
}

TEST(Fsdp1, NoShardPutsACopyOnEveryRank) {
  const TrainConfig config = Apply("NO_SHARD");
  EXPECT_EQ(*config.mesh.data_parallel_shard_degree, 1);
  EXPECT_EQ(*config.mesh.data_parallel_replicate_degree, kReplicateOverRest);
}

TEST(Fsdp1, EveryRemovedOptionInTheMigrationGuideHasAReason) {
  for (const absl::string_view option :
       {"backward_prefetch", "forward_prefetch", "use_orig_params",
        "sync_module_states", "limit_all_gathers", "param_init_fn", "device_id",
        "buffer_dtype", "backward_prefetch_limit", "process_group"}) {
    EXPECT_NE(WhyRemoved(option), std::nullopt) << option;
  }
  for (const absl::string_view kept :
       {"cpu_offload", "ignored_modules", "state_dict_type", ""}) {
    EXPECT_EQ(WhyRemoved(kept), std::nullopt) << kept;
  }
}

TEST(Fsdp1, IgnoresRemovedOptionsWithAndWithoutPrefix) {
  const Findings findings =
      ReadOptions("fsdp_use_orig_params: true\nsync_module_states: true\n");
  ASSERT_EQ(findings.list().size(), 2u);
  for (const Finding& finding : findings.list()) {
    EXPECT_EQ(finding.kind, Finding::Kind::kIgnored);
  }
}

TEST(Fsdp1, IgnoresForwardPrefetchAndNamesTheCall) {
  const Findings findings = ReadOptions("fsdp_forward_prefetch: true\n");
  ASSERT_EQ(findings.list().size(), 1u);
  EXPECT_EQ(findings.list()[0].kind, Finding::Kind::kIgnored);
  EXPECT_THAT(findings.list()[0].text,
              HasSubstr("set_modules_to_forward_prefetch"));
  EXPECT_TRUE(ReadOptions("fsdp_forward_prefetch: 'no'\n").list().empty());
}

TEST(Fsdp1, BackwardPrefetchIsAlwaysBefore) {
  const Findings pre = ReadOptions("backward_prefetch: BACKWARD_PRE\n");
  ASSERT_EQ(pre.list().size(), 1u);
  EXPECT_EQ(pre.list()[0].kind, Finding::Kind::kIgnored);
  for (const absl::string_view other : {"BACKWARD_POST", "NO_PREFETCH"}) {
    const Findings findings =
        ReadOptions("fsdp_backward_prefetch: " + std::string(other) + "\n");
    ASSERT_EQ(findings.list().size(), 1u);
    EXPECT_EQ(findings.list()[0].kind, Finding::Kind::kChanged);
    EXPECT_THAT(findings.list()[0].text, HasSubstr("BACKWARD_PRE"));
  }
}

}  // namespace
}  // namespace fsdp::config
