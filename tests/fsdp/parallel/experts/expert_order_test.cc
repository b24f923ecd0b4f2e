// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/expert_order.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<int64_t> Numbers(const at::Tensor& tensor) {
  const at::Tensor t = tensor.to(at::kLong).contiguous();
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

// The permutation for counts from `ranks` ranks, one after the other.
std::vector<int64_t> ExpertOrder(int64_t ranks,
                                 const std::vector<int64_t>& counts) {
  return Numbers(
      ByExpert(torch::tensor(counts, at::kLong).view({ranks, -1}),
               std::accumulate(counts.begin(), counts.end(), int64_t{0})));
}

TEST(ByExpert, OrdersTwoRanksWithTwoExperts) {
  EXPECT_THAT(ExpertOrder(2, {2, 3, 1, 4}),
              ElementsAre(0, 1, 5, 2, 3, 4, 6, 7, 8, 9));
}

TEST(ByExpert, KeepsTheOrderForOneRankOrOneExpert) {
  EXPECT_THAT(ExpertOrder(1, {2, 0, 1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(ExpertOrder(3, {1, 0, 2}), ElementsAre(0, 1, 2));
}

TEST(ByExpert, AcceptsExpertsWithoutRows) {
  EXPECT_THAT(ExpertOrder(2, {0, 3, 2, 0}), ElementsAre(3, 4, 0, 1, 2));
  EXPECT_THAT(ExpertOrder(2, {0, 0, 0, 0}), IsEmpty());
}

TEST(ByExpert, OrdersEqualCounts) {
  EXPECT_THAT(ExpertOrder(3, {2, 2, 2, 2, 2, 2}),
              ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
}

TEST(ByExpert, IsAPermutationThatInverseUndoes) {
  const at::Tensor counts = torch::tensor({3, 1, 4, 1, 5, 9}, at::kLong);
  const at::Tensor order = ByExpert(counts.view({2, 3}), 23);
  std::vector<int64_t> all(23);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_THAT(Numbers(std::get<0>(order.sort())), ElementsAreArray(all));
  EXPECT_THAT(Numbers(order.index_select(0, Inverse(order))),
              ElementsAreArray(all));
}

TEST(CountPerExpert, CountsEveryExpert) {
  const at::Tensor chosen = torch::tensor({3, 0, 3, 1}, at::kLong).view({2, 2});
  EXPECT_THAT(Numbers(CountPerExpert(chosen, 5)), ElementsAre(1, 1, 0, 2, 0));
  EXPECT_THAT(Numbers(CountPerExpert(chosen.narrow(0, 0, 0), 2)),
              ElementsAre(0, 0));
}

TEST(Align, PadsEveryExpert) {
  const AlignedRows aligned = Align(torch::tensor({3, 0, 5}, at::kLong), 8, 4);
  EXPECT_THAT(Numbers(aligned.places), ElementsAre(0, 1, 2, 4, 5, 6, 7, 8));
  EXPECT_THAT(Numbers(aligned.ends), ElementsAre(4, 4, 12));
  EXPECT_EQ(aligned.ends.scalar_type(), at::kInt);
  EXPECT_GE(aligned.num_places, 12);
}

}  // namespace
}  // namespace fsdp
