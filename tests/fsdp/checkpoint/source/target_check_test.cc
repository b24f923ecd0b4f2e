// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/target_check.h"

#include "ATen/ops/ones.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/source/local_source.h"
#include "fsdp/checkpoint/state/load_targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

dcp::Metadata Describe(const StateDict& state) {
  const auto targets = MakeLoadTargets(state);
  EXPECT_OK(targets);
  return DescribeTargets(**targets, [](size_t) { return true; });
}

TEST(TargetCheck, ListsMissingTargets) {
  const TempDir dir;
  ASSERT_OK(save({{"a", at::ones({2})}, {"n", 1}}, dir.Join("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       LocalSource::Open(nullptr, dir.Join("c")));
  const dcp::Metadata good = Describe({{"a", at::ones({2})}, {"n", 0}});
  const dcp::Metadata more = Describe({{"x", 1}, {"y", at::ones({1})}});
  EXPECT_THAT(CheckTargets(*source, {good}, false),
              IsOkAndHolds(UnorderedElementsAre()));
  EXPECT_THAT(CheckTargets(*source, {good, more, more}, false),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("lacks x, y"), Not(HasSubstr("y, x")))));
  EXPECT_THAT(CheckTargets(*source, {good, more}, true),
              IsOkAndHolds(UnorderedElementsAre("x", "y")));
  const dcp::Metadata unfit =
      Describe({{"a", 1}, {"n", at::ones({2})}, {"x", 1}});
  EXPECT_THAT(
      CheckTargets(*source, {good, unfit}, false),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("lacks x"), HasSubstr("a is stored as a tensor"),
                     HasSubstr("n is stored as a plain value"))));
}

}  // namespace
}  // namespace fsdp
