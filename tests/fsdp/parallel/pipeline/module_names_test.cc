// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/module_names.h"

#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;

using Names = std::vector<std::string>;

// How many layers each stage has; checks that they come once and in order.
std::vector<int64_t> LayersPerStage(const std::vector<Names>& stages) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (const Names& stage : stages) {
    counts.push_back(0);
    for (const std::string& name : stage) {
      if (name.rfind("layers.", 0) != 0) continue;
      EXPECT_EQ(name, "layers." + std::to_string(next++));
      ++counts.back();
    }
  }
  return counts;
}

TEST(PipelineModuleNames, OneStageHasEverything) {
  EXPECT_THAT(pipeline_module_names(1, 2),
              ElementsAre(ElementsAre("tok_embeddings", "layers.0", "layers.1",
                                      "norm", "output")));
  // Weights that no division would allow.
  EXPECT_THAT(
      pipeline_module_names(1, 0, {.input_weight = 9, .output_weight = 9}),
      ElementsAre(ElementsAre("tok_embeddings", "norm", "output")));
}

TEST(PipelineModuleNames, OtherModulesCountAsLayers) {
  EXPECT_THAT(
      pipeline_module_names(2, 3, {.input_weight = 2, .output_weight = 2}),
      ElementsAre(ElementsAre("tok_embeddings", "layers.0", "layers.1"),
                  ElementsAre("layers.2", "norm", "output")));
  // 8 + 2 in 4: 3, 3, 2, 2; the ends have one less.
  EXPECT_THAT(LayersPerStage(pipeline_module_names(4, 8)),
              ElementsAre(2, 3, 2, 1));
  EXPECT_THAT(LayersPerStage(pipeline_module_names(3, 6)),
              ElementsAre(2, 3, 1));
  EXPECT_THAT(LayersPerStage(pipeline_module_names(
                  4, 8, {.input_weight = 0, .output_weight = 0})),
              ElementsAre(2, 2, 2, 2));
  // A stage may have no layers at all.
  EXPECT_THAT(
      pipeline_module_names(3, 1),
      ElementsAre(ElementsAre("tok_embeddings"), ElementsAre("layers.0"),
                  ElementsAre("norm", "output")));
}

TEST(PipelineModuleNames, EveryLayerHasOneStage) {
  for (int64_t num_layers = 0; num_layers < 20; ++num_layers) {
    for (int64_t num_stages = 2; num_stages <= num_layers + 2; ++num_stages) {
      const std::vector<int64_t> counts =
          LayersPerStage(pipeline_module_names(num_stages, num_layers));
      EXPECT_EQ(counts.size(), static_cast<size_t>(num_stages));
      int64_t sum = 0;
      for (const int64_t count : counts) sum += count;
      EXPECT_EQ(sum, num_layers) << num_stages;
    }
  }
}

TEST(PipelineModuleNames, UsesTheModelsNames) {
  EXPECT_THAT(
      pipeline_module_names(2, 2,
                            {.inputs = {"model.embed_tokens", "model.rope"},
                             .layers = "model.layers",
                             .outputs = {"model.norm", "lm_head"}}),
      ElementsAre(
          ElementsAre("model.embed_tokens", "model.rope", "model.layers.0"),
          ElementsAre("model.layers.1", "model.norm", "lm_head")));
}

TEST(PipelineModuleNames, RefusesCountsThatCannotBeDivided) {
  const auto expect_error = [](int64_t num_stages, int64_t num_layers,
                               const PipelineModuleNamesOptions& options,
                               const std::vector<std::string>& says) {
    ExpectError<c10::ValueError>(
        [&] { pipeline_module_names(num_stages, num_layers, options); }, says);
  };
  expect_error(0, 4, {}, {"at least one stage", "0"});
  expect_error(2, -1, {}, {"-1 layers"});
  expect_error(2, 4, {.input_weight = -1}, {"input_weight -1"});
  expect_error(7, 4, {}, {"7 stages", "has 6", "4 layers"});
  expect_error(3, 4, {.input_weight = 3}, {"input_weight 3", "exceeds the 2"});
  expect_error(3, 4, {.output_weight = 3},
               {"output_weight 3", "exceeds the 2"});
}

}  // namespace
}  // namespace fsdp::testing
