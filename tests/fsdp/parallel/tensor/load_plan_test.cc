// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/tensor/load_plan.h"

#include <fstream>
#include <string>

#include "fsdp/mesh/device_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

std::string FileWith(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/plan.yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(LoadPlan, ReadsStyles) {
  const ParallelizePlan plan = load_plan(
      FileWith("embed: embedding_rowwise\n"
               "layers.*.norm: sequence_parallel\n"
               "layers.*.w[12]: colwise\n"
               "layers.*.w3: {style: rowwise, output_layouts: shard(1)}\n"
               "head: {style: colwise, use_local_output: true}\n"
               "rest: replicate\n"));
  ParallelStyle embedding = RowwiseParallel();
  embedding.embedding = true;
  EXPECT_EQ(plan,
            (ParallelizePlan{
                {"embed", embedding},
                {"layers.*.norm", SequenceParallel()},
                {"layers.*.w[12]", ColwiseParallel()},
                {"layers.*.w3", RowwiseParallel({.output_layouts = Shard(1)})},
                {"head", ColwiseParallel({.use_local_output = true})},
                {"rest", ReplicateParallel()}}));
}

TEST(LoadPlan, SaysWhichModulesAreEmbeddings) {
  RunRanks(1, [] {
    const DeviceMesh tp = init_device_mesh("cpu", {1}, {"tp"});
    const auto apply = [&tp](const std::string& text) {
      torch::nn::Sequential model(torch::nn::Embedding(4, 2),
                                  torch::nn::Linear(2, 4));
      parallelize_module(*model, tp, load_plan(FileWith(text)));
    };
    const auto error = [&apply](const std::string& text) {
      return ThrownMessage([&] { apply(text); });
    };
    apply(
        "'0': embedding_rowwise\n"
        "'1': {style: colwise, embedding: false}\n");
    apply("'0': rowwise\n'1': colwise\n");
    EXPECT_THAT(error("'1': embedding_colwise\n"),
                HasSubstr("'1' is a Linear, but the plan says that it is an "
                          "Embedding"));
    EXPECT_THAT(error("'0': {style: rowwise, embedding: false}\n"),
                HasSubstr("'0' is an Embedding, but the plan says that it is "
                          "not one"));
  });
}

TEST(LoadPlan, NamesTheProblem) {
  EXPECT_THAT(ThrownMessage([] { load_plan(FileWith("a.b: colwse\n")); }),
              HasSubstr("a.b is 'colwse'"));
  EXPECT_THAT(ThrownMessage([] { load_plan("/no/such/plan.yaml"); }),
              HasSubstr("/no/such/plan.yaml"));
}

}  // namespace
}  // namespace fsdp::testing
