#include "fsdp/parallel/tensor/load_plan.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

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
  EXPECT_EQ(plan,
            (ParallelizePlan{
                {"embed", RowwiseParallel()},
                {"layers.*.norm", SequenceParallel()},
                {"layers.*.w[12]", ColwiseParallel()},
                {"layers.*.w3", RowwiseParallel({.output_layouts = Shard(1)})},
                {"head", ColwiseParallel({.use_local_output = true})},
                {"rest", ReplicateParallel()}}));
}

TEST(LoadPlan, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf([] { load_plan(FileWith("a.b: colwse\n")); }),
              HasSubstr("a.b is 'colwse'"));
  EXPECT_THAT(ErrorOf([] { load_plan("/no/such/plan.yaml"); }),
              HasSubstr("/no/such/plan.yaml"));
}

}  // namespace
}  // namespace fsdp::testing
