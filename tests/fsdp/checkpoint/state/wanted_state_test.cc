#include "fsdp/checkpoint/state/wanted_state.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "fsdp/checkpoint/checkpoint.h"
#include "fsdp/checkpoint/source/local_source.h"
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
  const auto wanted = WantState(state);
  EXPECT_OK(wanted);
  return DescribeWanted(**wanted, [](size_t) { return true; });
}

TEST(WantedState, DescribesTensorsWithBoxesOnRequest) {
  ASSERT_OK_AND_ASSIGN(const auto wanted,
                       WantState({{"a", at::ones({2, 3})}, {"n", 1}}));
  const dcp::Metadata all =
      DescribeWanted(*wanted, [](size_t) { return true; });
  ASSERT_EQ(all.entries.size(), 2u);
  const auto& tensor =
      std::get<dcp::TensorStorageMetadata>(all.entries[0].value);
  EXPECT_EQ(tensor.size, (dcp::Dims{2, 3}));
  ASSERT_EQ(tensor.chunks.size(), 1u);
  EXPECT_EQ(tensor.chunks[0].box, dcp::WholeBox(tensor.size));
  const dcp::Metadata none =
      DescribeWanted(*wanted, [](size_t) { return false; });
  EXPECT_TRUE(std::get<dcp::TensorStorageMetadata>(none.entries[0].value)
                  .chunks.empty());
  EXPECT_THAT(WantState({{"m", at::empty({2}, at::device(at::kMeta))}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m: ")));
}

TEST(WantedState, ListsWhatRanksWantAndIsNotThere) {
  const TempDir dir;
  ASSERT_OK(save({{"a", at::ones({2})}, {"n", 1}}, dir.Join("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       LocalSource::Open(nullptr, dir.Join("c")));
  const dcp::Metadata good = Describe({{"a", at::ones({2})}, {"n", 0}});
  const dcp::Metadata more = Describe({{"x", 1}, {"y", at::ones({1})}});
  EXPECT_THAT(CheckWanted(*source, {good}, false),
              IsOkAndHolds(UnorderedElementsAre()));
  EXPECT_THAT(CheckWanted(*source, {good, more, more}, false),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("lacks x, y"), Not(HasSubstr("y, x")))));
  EXPECT_THAT(CheckWanted(*source, {good, more}, true),
              IsOkAndHolds(UnorderedElementsAre("x", "y")));
  const dcp::Metadata unfit =
      Describe({{"a", 1}, {"n", at::ones({2})}, {"x", 1}});
  EXPECT_THAT(
      CheckWanted(*source, {good, unfit}, false),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("lacks x"), HasSubstr("a is stored as a tensor"),
                     HasSubstr("n is stored as a plain value"))));
}

}  // namespace
}  // namespace fsdp
