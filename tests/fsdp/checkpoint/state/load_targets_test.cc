// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/load_targets.h"

#include <memory>

#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(LoadTargets, DescribesTensorsWithBoxesOnRequest) {
  ASSERT_OK_AND_ASSIGN(const auto targets,
                       MakeLoadTargets({{"a", at::ones({2, 3})}, {"n", 1}}));
  const dcp::Metadata all =
      DescribeTargets(*targets, [](size_t) { return true; });
  ASSERT_EQ(all.entries.size(), 2u);
  const auto& tensor =
      std::get<dcp::TensorStorageMetadata>(all.entries[0].value);
  EXPECT_EQ(tensor.size, (dcp::Dims{2, 3}));
  ASSERT_EQ(tensor.chunks.size(), 1u);
  EXPECT_EQ(tensor.chunks[0].box, dcp::WholeBox(tensor.size));
  const dcp::Metadata none =
      DescribeTargets(*targets, [](size_t) { return false; });
  EXPECT_TRUE(std::get<dcp::TensorStorageMetadata>(none.entries[0].value)
                  .chunks.empty());
  EXPECT_THAT(MakeLoadTargets({{"m", at::empty({2}, at::device(at::kMeta))}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m: ")));
}

}  // namespace
}  // namespace fsdp
