// SPDX-License-Identifier: Apache-2.0

#include "tools/fsdp_config/render.h"

#include <cstdint>
#include <string>

#include "dcp/tensor/dtype.h"
#include "dcp/tensor/parallel_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace fsdp::tools {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

Findings SomeFindings() {
  Findings findings;
  findings.Ignored({.file = "a.yaml", .line = 3, .key = "x"}, "has no effect");
  findings.Problem({.file = "a.yaml", .line = 9, .column = 5, .key = "y"},
                   "is '1', not 2");
  return findings;
}

TEST(FsdpConfigRender, PutsProblemsFirst) {
  EXPECT_EQ(RenderFindings(SomeFindings()),
            "problem: a.yaml:9: y is '1', not 2\n"
            "ignored: a.yaml:3: x has no effect\n");
  EXPECT_EQ(RenderCounts(SomeFindings()), "1 problem, 1 without effect");
  EXPECT_EQ(RenderCounts({}), "nothing to report");
}

TEST(FsdpConfigRender, ShowsLineAndColumn) {
  const Sources sources = {{"a.yaml", "\n\n  x: 1\n\n\n\n\n\n\ty: 1\n"}};
  EXPECT_EQ(RenderFindings(SomeFindings(), sources),
            "problem: a.yaml:9: y is '1', not 2\n"
            "      9 |  y: 1\n"
            "        |     ^\n"
            "ignored: a.yaml:3: x has no effect\n"
            "      3 |   x: 1\n");
  // A terminal gets no control characters, and no more lines than there are.
  EXPECT_EQ(RenderFindings(SomeFindings(), {{"a.yaml", "\n\n\x1b[2J\n"}}),
            RenderFindings(SomeFindings()));
}

TEST(FsdpConfigRender, ColorsTheKind) {
  EXPECT_THAT(RenderFindings(SomeFindings(), {}, /*color=*/true),
              HasSubstr("\033[1;31mproblem\033[0m: a.yaml:9"));
}

TEST(FsdpConfigRender, FollowsTheLines) {
  Findings findings;
  findings.Problem({.file = "a", .line = 20, .key = "x"}, "is late");
  findings.Problem({.file = "a", .line = 3, .key = "y"}, "is early");
  EXPECT_EQ(RenderFindings(findings),
            "problem: a:3: y is early\nproblem: a:20: x is late\n");
}

TEST(FsdpConfigRender, JsonHasEveryPlace) {
  const auto json = nlohmann::json::parse(
      FindingsJson(ConfigDialect::kComposer, SomeFindings()));
  EXPECT_EQ(json["dialect"], "composer");
  ASSERT_EQ(json["findings"].size(), 2u);
  EXPECT_EQ(json["findings"][1]["kind"], "problem");
  EXPECT_EQ(json["findings"][1]["line"], 9);
  EXPECT_EQ(json["findings"][1]["column"], 5);
  EXPECT_EQ(json["findings"][1]["key"], "y");
}

TEST(FsdpConfigRender, JsonAcceptsAnyBytes) {
  Findings findings;
  findings.Problem({.file = "\xff"}, "is \xc3(");
  const std::string json = FindingsJson(ConfigDialect::kComposer, findings);
  EXPECT_TRUE(nlohmann::json::accept(json)) << json;
}

Explanation Explain(const TrainConfig& config, int64_t world_size,
                    bool with_model) {
  ExplainOptions options = {.world_size = world_size,
                            .local_world_size = world_size};
  if (with_model) {
    options.parameters = {
        {"layers.0.w", {8, 4}}, {"layers.1.w", {8, 4}}, {"head.w", {8, 4}}};
  }
  const absl::StatusOr<Explanation> result = explain(config, options);
  EXPECT_OK(result.status());
  return result.value_or(Explanation{});
}

TEST(FsdpConfigRender, ExplainsAHybridMeshInWords) {
  TrainConfig config;
  config.mesh.data_parallel_replicate_degree = 2;
  config.sharding.activation_checkpointing = 2;
  config.sharding.cpu_offload = true;
  config.checkpoint.folder = "run";
  config.checkpoint.interval = 10;
  const std::string text =
      RenderExplanation(config, Explain(config, 8, /*with_model=*/true));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("8 ranks: 2 copies x 4 shards"),
            HasSubstr("(HSDP, DeepSpeed's MiCS)"), HasSubstr("ZeRO stage 3"),
            HasSubstr("layers.0 to layers.1: 32 elements each"),
            HasSubstr("the rest: 32 elements"), HasSubstr("one layer of 2"),
            HasSubstr("all on the host"), HasSubstr("in run, every 10 steps")));
}

TEST(FsdpConfigRender, SaysWhichRuleReducesGradients) {
  TrainConfig config;
  config.precision.param_dtype = dcp::DType::kBFloat16;
  const auto rule = [&config] {
    const auto json = nlohmann::json::parse(
        ExplanationJson(ConfigDialect::kTorchTitan, config,
                        Explain(config, 4, /*with_model=*/false), {}));
    return json["precision"]["reduce_dtype_rule"].get<std::string>();
  };
  EXPECT_THAT(
      RenderExplanation(config, Explain(config, 4, /*with_model=*/false)),
      HasSubstr("computes in bfloat16, reduces gradients in float32\n"
                "  (no reduce_dtype: as the shards, the rule of "
                "PyTorch 2.15)\n"));
  EXPECT_EQ(rule(), "shards");
  config.precision.reduce_dtype = dcp::DType::kBFloat16;
  EXPECT_THAT(
      RenderExplanation(config, Explain(config, 4, /*with_model=*/false)),
      HasSubstr("computes in bfloat16, reduces gradients in bfloat16\n"
                "  (the config says so)\n"));
  EXPECT_EQ(rule(), "config");
}

TEST(FsdpConfigRender, ExplainsEachParallelism) {
  TrainConfig config;
  config.mesh.tensor_parallel_degree = 2;
  config.mesh.context_parallel_degree = 2;
  config.mesh.pipeline_parallel_degree = 2;
  config.mesh.expert_parallel_degree = 4;
  dcp::ParallelPlan plan;
  ASSERT_OK(plan.Add({.pattern = "layers.*.w",
                      .style = *dcp::ParseParallelStyle("rowwise_rep")}));
  config.mesh.parallelize_plan = plan;
  const Explanation explanation = Explain(config, 16, /*with_model=*/true);
  EXPECT_THAT(
      RenderExplanation(config, explanation),
      AllOf(HasSubstr("16 ranks: 2 stages x 2 shards x 2 parts of each "
                      "sequence x 2 parts of each layer"),
            HasSubstr("each parameter is cut over 4 ranks"),
            HasSubstr("keys and values over 2 ranks"),
            HasSubstr("experts are divided among 4 ranks\n"),
            HasSubstr("Layers: cut by the plan of the config, 1 pattern\n"),
            HasSubstr("are not taken into account")));
  const auto json = nlohmann::json::parse(
      ExplanationJson(ConfigDialect::kComposer, config, explanation, {}));
  EXPECT_EQ(json["mesh"]["context_parallel"], 2);
  EXPECT_EQ(json["context_parallel_method"], "allgather");
  EXPECT_EQ(json["mesh"]["pipeline_parallel"], 2);
  EXPECT_EQ(json["mesh"]["expert_parallel"], 4);
  EXPECT_EQ(json["parallelize_plan"]["layers.*.w"],
            "{style: rowwise, input_layouts: replicate}");
  config.mesh.context_parallel_method = "alltoall";
  EXPECT_THAT(RenderExplanation(config, explanation),
              HasSubstr("ring attention: keys and values move round 2 ranks"));
  config.mesh.context_parallel_method = "ulysses";
  EXPECT_THAT(RenderExplanation(config, explanation),
              HasSubstr("a part of the heads on each of 2 ranks"));
}

TEST(FsdpConfigRender, ExplainsWhereActivationsAre) {
  TrainConfig config;
  const std::string plain =
      RenderExplanation(config, Explain(config, 4, /*with_model=*/true));
  EXPECT_THAT(plain,
              Not(AnyOf(HasSubstr("Activation offload"), HasSubstr("host"))));
  config.sharding.activation_cpu_offload = true;
  const Explanation explanation = Explain(config, 4, /*with_model=*/true);
  EXPECT_THAT(RenderExplanation(config, explanation),
              AllOf(HasSubstr("Activation offload: activations wait"),
                    HasSubstr("activations (host), at most"),
                    HasSubstr("all on the device, at most"),
                    HasSubstr("all on the host, at most")));
  const auto json = nlohmann::json::parse(
      ExplanationJson(ConfigDialect::kComposer, config, explanation, {}));
  EXPECT_EQ(json["activation_cpu_offload"], true);
  EXPECT_EQ(json["memory_bytes"]["activations_on_host"],
            explanation.memory.activations_on_host);
}

TEST(FsdpConfigRender, WithoutAModelExplainsHowToSeeMemory) {
  TrainConfig config;
  config.sharding.reshard_after_forward = ReshardSetting(false);
  const std::string text =
      RenderExplanation(config, Explain(config, 8, /*with_model=*/false));
  EXPECT_THAT(text, AllOf(HasSubstr("ZeRO stage 2"), HasSubstr("--model"),
                          Not(HasSubstr("Memory of a rank"))));
}

TEST(FsdpConfigRender, JsonHasTheNumbers) {
  const TrainConfig config;
  const auto json = nlohmann::json::parse(
      ExplanationJson(ConfigDialect::kTorchTitan, config,
                      Explain(config, 4, /*with_model=*/true), {}));
  EXPECT_EQ(json["mesh"]["shard"], 4);
  EXPECT_EQ(json["zero_stage"], 3);
  EXPECT_EQ(json["groups"].size(), 3u);
  EXPECT_EQ(json["memory_bytes"]["parameters"], 3 * 2 * 4 * 4);
}

}  // namespace
}  // namespace fsdp::tools
