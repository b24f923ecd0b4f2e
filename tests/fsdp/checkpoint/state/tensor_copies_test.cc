// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/tensor_copies.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Mismatches, OnlyMissingNamesAreNotFound) {
  Mismatches mismatches;
  EXPECT_OK(mismatches.ToStatus("x"));
  mismatches.missing = {"a", "b"};
  EXPECT_THAT(mismatches.ToStatus("x"),
              StatusIs(StatusCode::kNotFound, "x: missing: a, b"));
  mismatches.unexpected = {"c"};
  mismatches.wrong = {"d is odd", "e is odd"};
  EXPECT_THAT(mismatches.ToStatus("x"),
              StatusIs(StatusCode::kInvalidArgument,
                       "x: missing: a, b; unexpected: c; d is odd; e is odd"));
}

std::vector<std::string> Problems(const at::Tensor& dst, StateValue src,
                                  const CopyRules& rules = {}) {
  Mismatches mismatches;
  CheckCopy({.name = "w", .dst = dst, .spec = {}, .src = std::move(src)}, rules,
            mismatches);
  EXPECT_THAT(mismatches.missing, IsEmpty());
  return mismatches.wrong;
}

TEST(TensorCopies, NamesTensorsThatCannotBeCopied) {
  const at::Tensor dst = torch::zeros({2, 3});
  EXPECT_THAT(Problems(dst, torch::ones({2, 3}, at::kHalf)), IsEmpty());
  EXPECT_THAT(Problems(dst, torch::ones({3, 2})),
              ElementsAre("w has shape [3, 2], but [2, 3] is expected"));
  EXPECT_THAT(Problems(dst, at::Tensor()), ElementsAre("w is undefined"));
  EXPECT_THAT(Problems(dst, StateTuple()),
              ElementsAre("w is a tuple, not a tensor"));
  const at::Tensor meta = torch::ones({2, 3}, at::kMeta);
  EXPECT_THAT(Problems(dst, meta),
              ElementsAre("w is on the meta device: it has no values"));
  EXPECT_THAT(Problems(dst, meta, {.values_elsewhere = true}), IsEmpty());
  EXPECT_THAT(
      Problems(meta, dst),
      ElementsAre("w would be copied to a tensor on the meta device; call "
                  "fsdp::to_empty first"));
  EXPECT_THAT(Problems(dst, torch::ones({2, 3}, at::kComplexFloat)),
              ElementsAre("w is complex, but real numbers are expected"));
}

TEST(TensorCopies, CopiesCastAndKeepTheDestination) {
  const at::Tensor dst = torch::zeros({2, 3}).requires_grad_();
  ASSERT_OK(RunCopy({.name = "w",
                     .dst = dst,
                     .spec = {},
                     .src = torch::full({2, 3}, 4, at::kLong)}));
  EXPECT_TRUE(torch::equal(dst, torch::full({2, 3}, 4.0)));
  EXPECT_TRUE(dst.is_leaf());
}

TEST(TensorCopies, BoxesAreViews) {
  const at::Tensor whole = torch::arange(12).view({3, 4});
  const at::Tensor view = BoxView(whole, {{1, 2}, {2, 1}});
  EXPECT_TRUE(torch::equal(view, torch::tensor({{6}, {10}})));
  EXPECT_TRUE(view.is_alias_of(whole));
  // A rank without rows holds an empty box at the end.
  EXPECT_EQ(BoxView(whole, {{3, 0}, {0, 4}}).numel(), 0);
}

TEST(TensorCopies, KindsHaveNames) {
  EXPECT_EQ(KindName(StateValue()), "None");
  EXPECT_EQ(KindName(StateValue(true)), "a bool");
  EXPECT_EQ(KindName(StateValue(1)), "an int");
  EXPECT_EQ(KindName(StateValue(1.5)), "a float");
  EXPECT_EQ(KindName(StateValue("x")), "a text");
  EXPECT_EQ(KindName(StateValue(StateBytes())), "bytes");
  EXPECT_EQ(KindName(StateValue(torch::ones({1}))), "a tensor");
  EXPECT_EQ(KindName(StateValue(StateList())), "a list");
  EXPECT_EQ(KindName(StateValue(StateTuple())), "a tuple");
  EXPECT_EQ(KindName(StateValue(StateDict())), "a dict");
  EXPECT_EQ(KindName(StateValue(std::shared_ptr<Stateful>())), "a Stateful");
}

}  // namespace
}  // namespace fsdp
