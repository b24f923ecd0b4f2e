// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/row_exchange.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/autograd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

// Rank r sends counts[r][s] rows to rank s; a row's value tells both.
TEST(ExchangeRows, BringsEveryRowAndItsGradientBack) {
  RunRanks(3, [] {
    StartRank();
    const std::vector<std::vector<int64_t>> counts = {
        {1, 2, 0}, {0, 0, 0}, {3, 0, 1}};
    const auto rank = static_cast<size_t>(get_rank());
    std::vector<at::Tensor> parts, expected;
    std::vector<int64_t> received;
    for (size_t other = 0; other < 3; ++other) {
      parts.push_back(torch::full({counts[rank][other], 2},
                                  static_cast<double>(10 * rank + other),
                                  at::kDouble));
      expected.push_back(torch::full({counts[other][rank], 2},
                                     static_cast<double>(10 * other + rank),
                                     at::kDouble));
      received.push_back(counts[other][rank]);
    }
    const at::Tensor rows = torch::cat(parts).requires_grad_();
    const at::Tensor result =
        ExchangeRows(rows, counts[rank], received, world_group());
    EXPECT_TRUE(result.equal(torch::cat(expected)));
    // The square's gradient is twice the row, wherever it was computed; the
    // second gradient is 2.
    const at::Tensor gradient = torch::autograd::grad(
        {result.square().sum()}, {rows}, {}, /*retain_graph=*/true,
        /*create_graph=*/true)[0];
    EXPECT_TRUE(gradient.equal(2 * rows));
    EXPECT_TRUE(torch::autograd::grad({gradient.sum()}, {rows})[0].equal(
        torch::full_like(rows, 2)));
    const at::Tensor low = rows.detach().to(at::kBFloat16);
    EXPECT_TRUE(ExchangeRows(low, counts[rank], received, world_group())
                    .equal(torch::cat(expected).to(at::kBFloat16)));
  });
}

}  // namespace
}  // namespace fsdp::testing
