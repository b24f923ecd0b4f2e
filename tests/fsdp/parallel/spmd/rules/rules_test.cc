// SPDX-License-Identifier: Apache-2.0
// Products, views, slices, reductions, indexing and joining: see op_case.h.

#include "fsdp/parallel/spmd/rules/rules.h"

#include "gtest/gtest.h"
#include "tests/fsdp/parallel/spmd/rules/op_case.h"
#include "torch/types.h"

namespace fsdp::spmd {
namespace {

using T = Tensors;

std::vector<OpCase> Products() {
  const auto matmul = [](const T& x) { return at::matmul(x[0], x[1]); };
  return {
      Case("matmul", {{{5, 4}}, {{4, 3}}}, matmul),
      Case("matmul of a batch", {{{2, 5, 4}}, {{4, 3}}}, matmul),
      Case("matmul of batches", {{{2, 3, 5, 4}}, {{2, 3, 4, 3}}}, matmul),
      Case("mm", {{{5, 4}}, {{4, 3}}},
           [](const T& x) { return at::mm(x[0], x[1]); }),
      Case("bmm", {{{4, 5, 4}}, {{4, 4, 3}}},
           [](const T& x) { return at::bmm(x[0], x[1]); }),
      Case("addmm", {{{3}}, {{5, 4}}, {{4, 3}}},
           [](const T& x) { return at::addmm(x[0], x[1], x[2]); }),
      Case("linear", {{{2, 5, 4}}, {{3, 4}}},
           [](const T& x) { return at::linear(x[0], x[1]); }),
      Case("linear with a bias", {{{5, 4}}, {{3, 4}}, {{3}}},
           [](const T& x) { return at::linear(x[0], x[1], x[2]); }),
      Case("addmm scaled", {{{5, 3}}, {{5, 4}}, {{4, 3}}},
           [](const T& x) { return at::addmm(x[0], x[1], x[2], 2, 3); }),
      Case("baddbmm", {{{4, 5, 3}}, {{4, 5, 2}}, {{4, 2, 3}}},
           [](const T& x) { return at::baddbmm(x[0], x[1], x[2], 2, 3); }),
      Case("matmul of a vector", {{{5, 4}}, {{4}}}, matmul),
      Case("matmul of vectors", {{{5}}, {{5}}}, matmul),
      Case("einsum", {{{2, 4, 3}}, {{2, 3, 5}}},
           [](const T& x) {
             return at::einsum("bij,bjk->bki", {x[0], x[1]});
           },
           {"0:*", "1:*"}),
      Case("outer", {{{4}}, {{5}}},
           [](const T& x) { return at::outer(x[0], x[1]); }),
  };
}

std::vector<OpCase> Views() {
  return {
      Case("t", {{{4, 5}}}, [](const T& x) { return x[0].t(); }),
      Case("transpose", {{{4, 3, 5}}},
           [](const T& x) { return x[0].transpose(-1, 0); }),
      Case("permute", {{{4, 3, 5}}},
           [](const T& x) {
             return x[0].permute({2, 0, 1});
           }),
      Case("mT", {{{4, 3, 5}}}, [](const T& x) { return x[0].mT(); }),
      Case("movedim", {{{4, 3, 5}}},
           [](const T& x) { return x[0].movedim(0, 2); }),
      Case("unsqueeze", {{{4, 5}}},
           [](const T& x) { return x[0].unsqueeze(1) + x[0].unsqueeze(-1); },
           {"0:*"}),
      Case("heads split off", {{{2, 3, 12}}},
           [](const T& x) {
             return x[0].view({2, 3, 6, 2});
           }),
      Case("merged for a loss", {{{6, 4, 5}}},
           [](const T& x) {
             return x[0].view({-1, 5});
           },
           {"0:pieces"}),
      Case("reshape", {{{6, 3, 12}}},
           [](const T& x) {
             return x[0].transpose(0, 1).reshape({3, -1});
           },
           {"0:2", "0:pieces"}),
      Case("flatten", {{{2, 6, 4}}}, [](const T& x) { return x[0].flatten(1); },
           {"0:2"}),
      Case("unflatten", {{{6, 4}}},
           [](const T& x) {
             return x[0].unflatten(0, {3, 2});
           },
           {"0:0"}),
  };
}

std::vector<OpCase> Slices() {
  return {
      {"chunk",
       {{{4, 6}}},
       [](const T& x) { return x[0].chunk(2, -1); },
       {"0:1"}},
      {"split",
       {{{4, 6}}},
       [](const T& x) { return x[0].split(4, 1); },
       {"0:1"}},
      {"split_with_sizes",
       {{{4, 6}}},
       [](const T& x) {
         return x[0].split_with_sizes({1, 5}, 1);
       },
       {"0:1"}},
      {"unbind",
       {{{4, 3, 5}}},
       [](const T& x) { return x[0].unbind(1); },
       {"0:1"}},
      Case("select", {{{4, 3, 5}}},
           [](const T& x) { return x[0].select(1, -1); }, {"0:1"}),
      Case("slice", {{{4, 6}}},
           [](const T& x) { return x[0].slice(1, 1, 5, 2); }, {"0:1"}),
      Case("slice of everything", {{{4, 6}}},
           [](const T& x) { return x[0].slice(1) + x[0].slice(0, 0, 4); }),
      Case("narrow", {{{4, 6}}},
           [](const T& x) { return x[0].narrow(1, 2, 3); }, {"0:1"}),
      Case("roll", {{{4, 6}}}, [](const T& x) { return x[0].roll(1, 1); },
           {"0:1"}),
      Case("flip", {{{4, 6}}}, [](const T& x) { return x[0].flip({1}); },
           {"0:1"}),
  };
}

std::vector<OpCase> Reductions() {
  return {
      Case("sum", {{{4, 5}}}, [](const T& x) { return x[0].sum(); }),
      Case("sum of a dimension", {{{4, 5, 2}}},
           [](const T& x) { return x[0].sum(1); }),
      Case("sum of kept dimensions", {{{4, 5, 2}}},
           [](const T& x) {
             return at::sum(x[0], at::IntArrayRef({0, 1}), true);
           }),
      Case("mean", {{{4, 5}}}, [](const T& x) { return x[0].mean(); }),
      Case("mean of a dimension", {{{4, 5, 2}}},
           [](const T& x) { return x[0].mean({-2}, true); }),
      Case("amax", {{{4, 5, 2}}}, [](const T& x) { return x[0].amax({1}); },
           {"0:1"}),
      Case("var", {{{4, 5}}}, [](const T& x) { return x[0].var(1, true); },
           {"0:1"}),
      Case("norm", {{{4, 5}}},
           [](const T& x) { return x[0].norm(2, {1}, true); }, {"0:1"}),
      {"max of a dimension",
       {{{4, 5}}},
       [](const T& x) {
         const auto [values, indices] = x[0].max(1);
         return T{values, indices};
       },
       {"0:1"}},
      Case("maximum", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::max(x[0], x[1]); }),
      {"topk",
       {{{4, 5}}},
       [](const T& x) {
         const auto [values, indices] = x[0].topk(2, 1);
         return T{values, indices};
       },
       {"0:1"}},
      {"sort",
       {{{4, 5}}},
       [](const T& x) {
         const auto [values, indices] = x[0].sort(-1, true);
         return T{values, indices};
       },
       {"0:1"}},
      Case("argmax", {{{4, 5, 2}}}, [](const T& x) { return x[0].argmax(1); },
           {"0:1"}),
      Case("cumsum", {{{4, 5}}}, [](const T& x) { return x[0].cumsum(0); },
           {"0:0"}),
      Case("softmax", {{{4, 3, 5}}},
           [](const T& x) { return x[0].softmax(-1); }, {"0:2"}),
      Case("log_softmax", {{{4, 3, 5}}},
           [](const T& x) { return x[0].log_softmax(1); }, {"0:1"}),
      Case("logsumexp", {{{4, 3, 5}}},
           [](const T& x) {
             return at::logsumexp(x[0], at::IntArrayRef({0, 1}));
           },
           {"0:0", "0:1"}),
      Case("glu", {{{4, 6}}}, [](const T& x) { return at::glu(x[0], 1); },
           {"0:1"}),
  };
}

std::vector<OpCase> Indexing() {
  return {
      Case("index_select", {{{4, 5}}, Index({3}, 5)},
           [](const T& x) { return x[0].index_select(1, x[1]); }, {"0:1"}),
      Case("index of rows", {{{6, 5}}, Index({2, 3}, 6)},
           [](const T& x) { return x[0].index({x[1]}); }, {"0:0"}),
      Case("index of columns", {{{4, 5, 2}}, Index({2, 3}, 5)},
           [](const T& x) {
             return x[0].index({torch::indexing::Slice(), x[1]});
           },
           {"0:1"}),
      Case("gather", {{{4, 5}}, Index({4, 2}, 5)},
           [](const T& x) { return x[0].gather(1, x[1]); }, {"0:1", "1:1"}),
      Case("cat", {{{4, 5}}, {{4, 2}}},
           [](const T& x) {
             return at::cat({x[0], x[1]}, 1);
           },
           {"0:1", "1:1"}),
      Case("stack", {{{4, 5}}, {{4, 5}}},
           [](const T& x) {
             return at::stack({x[0], x[1]}, 1);
           }),
  };
}

TEST(Rules, SlicesMatchTheWhole) { CheckOnRanks(Slices()); }

TEST(Rules, ReductionsMatchTheWhole) { CheckOnRanks(Reductions()); }

TEST(Rules, IndexingAndJoiningMatchTheWhole) { CheckOnRanks(Indexing()); }

TEST(Rules, ProductsMatchTheWhole) { CheckOnRanks(Products()); }

TEST(Rules, ViewsMatchTheWhole) { CheckOnRanks(Views()); }

}  // namespace
}  // namespace fsdp::spmd
