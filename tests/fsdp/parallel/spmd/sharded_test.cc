// SPDX-License-Identifier: Apache-2.0
// Activations in parts: the moves between layouts with their duals, and errors
// where a gradient would be lost.

#include "fsdp/parallel/spmd/sharded.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/handler.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/operand.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/autograd.h"
#include "torch/types.h"

namespace fsdp::spmd {
namespace {

using testing::Count;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::StartRankInDouble;
using testing::ThrownMessage;

void RunOnAxes(int ranks, const std::function<void(const AxisPtr&)>& body) {
  RunRanks(ranks, [&body, ranks] {
    StartRankInDouble();
    InstallHandler();
    torch::manual_seed(1);
    body(InternAxis(init_device_mesh("cpu", {ranks})));
  });
}

at::Tensor GatherWhole(const at::Tensor& x, const AxisPtr& axis) {
  return Operand(x, axis).To(Layout::Same());
}

at::Tensor InParts(const at::Tensor& whole, const Layout& layout,
                   const AxisPtr& axis) {
  const Sizes sizes = whole.sizes().vec();
  return Wrap(Move(whole, Layout::Same(), layout, sizes, axis), layout, axis,
              sizes);
}

const std::vector<Layout>& AllLayouts() {
  static const auto* layouts = new std::vector<Layout>{
      Layout::Same(),           Layout::Shard(0),    Layout::Shard(1),
      Layout::Partial(),        Layout::Shard(1, 2), Layout::Shard(0, 1, true),
      Layout::Shard(1, 2, true)};
  return *layouts;
}

TEST(Sharded, MovesKeepTheValueAndTheGradient) {
  for (const int ranks : {1, 2, 3}) {
    RunOnAxes(ranks, [](const AxisPtr& axis) {
      for (const Sizes& sizes : {Sizes{7, 4}, Sizes{2, 8}, Sizes{1, 2}}) {
        for (const Layout& from : AllLayouts()) {
          for (const Layout& to : AllLayouts()) {
            const std::string what =
                absl::StrCat(to_string(from), " to ", to_string(to));
            const at::Tensor x = torch::arange(ElementCount(sizes), at::kDouble)
                                     .view(sizes)
                                     .requires_grad_();
            const at::Tensor part = Move(x, Layout::Same(), from, sizes, axis);
            const at::Tensor moved = Move(part, from, to, sizes, axis);
            EXPECT_EQ(moved.sizes().vec(),
                      PartSizes(sizes, to, axis->size, axis->rank));
            if (to.is_shard()) {
              EXPECT_TRUE(at::equal(moved, Cut(x, to, *axis))) << what;
            }
            const at::Tensor back =
                Move(moved, to, Layout::Same(), sizes, axis);
            EXPECT_TRUE(at::allclose(back, x)) << what;
            // The gradient of a sum of cubes, and the gradient of that.
            const at::Tensor grad = torch::autograd::grad(
                {back.pow(3).sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
            EXPECT_TRUE(at::allclose(grad, 3 * x * x)) << what;
            const at::Tensor second =
                torch::autograd::grad({grad.sum()}, {x})[0];
            EXPECT_TRUE(at::allclose(second, 6 * x)) << what;
          }
        }
      }
    });
  }
}

// Each rank computes with another factor; the gradient is the sum of theirs.
TEST(Sharded, VaryingSumsTheGradients) {
  RunOnAxes(3, [](const AxisPtr& axis) {
    const Sizes sizes = {5, 4};
    for (const Layout& from : AllLayouts()) {
      const at::Tensor x = torch::randn(sizes).requires_grad_();
      testing::CountingBackend& counts = Count(axis->group);
      torch::manual_seed(0);
      const at::Tensor value = torch::randn(sizes);
      at::Tensor leaf = value.clone().requires_grad_();
      const at::Tensor varying = MoveToVarying(
          Move(leaf, Layout::Same(), from, sizes, axis), from, sizes, axis);
      EXPECT_TRUE(at::allclose(varying, value));
      const double factor = static_cast<double>(axis->rank + 1);
      at::Tensor sum = (varying * factor).sum();
      counts.Reset();
      sum.backward();
      EXPECT_TRUE(at::allclose(leaf.grad(), at::full(sizes, 6.0)))
          << to_string(from) << leaf.grad();
    }
  });
}

TEST(Sharded, ReportsTheWholeSizesAndHasNoStorage) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::Tensor x = torch::randn({3, 4});
    const at::Tensor parts = InParts(x, Layout::Shard(0), axis);
    EXPECT_EQ(parts.sizes(), x.sizes());
    EXPECT_EQ(parts.numel(), 12);
    EXPECT_EQ(parts.scalar_type(), at::kDouble);
    EXPECT_FALSE(parts.has_storage());
    EXPECT_NE(ThrownMessage([&] { parts.data_ptr(); }), "");
    EXPECT_NE(ThrownMessage([&] { parts.storage(); }), "");
    ASSERT_NE(AsSharded(parts), nullptr);
    EXPECT_EQ(AsSharded(parts)->local.size(0), axis->rank == 0 ? 2 : 1);
    EXPECT_EQ(AsSharded(x), nullptr);
    EXPECT_EQ(AsSharded(at::Tensor()), nullptr);
  });
}

struct Identity : torch::autograd::Function<Identity> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*ctx*/,
                            const at::Tensor& x) {
    return x * 1;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*ctx*/,
      torch::autograd::variable_list grads) {
    return grads;
  }
};

// A Function that takes an activation in parts records it as an input, and one
// that returns one, as a result: the graph is in neither place.
TEST(Sharded, FunctionsThatLoseGradientsThrow) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::Tensor x = torch::randn({4, 4}).requires_grad_();
    const at::Tensor parts = InParts(x, Layout::Shard(0), axis) * 2;
    const at::Tensor returned = Identity::apply(parts);
    EXPECT_THAT(ThrownMessage([&] { (returned * 2).sum(); }),
                HasSubstr("returned an activation that lies in parts"));
    EXPECT_THAT(ThrownMessage([&] {
                  torch::autograd::backward({parts}, {torch::ones({4, 4})});
                }),
                HasSubstr("an autograd Function took it as it is"));
  });
}

TEST(Sharded, WithoutARuleArgumentsAreGathered) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::Tensor x = torch::randn({4, 4}).requires_grad_();
    const at::Tensor parts = InParts(x, Layout::Shard(0), axis);
    gathered_operators(/*reset=*/true);
    const at::Tensor result = at::cumprod(parts, 0);
    EXPECT_EQ(AsSharded(result), nullptr);
    EXPECT_TRUE(at::allclose(result, at::cumprod(x, 0)));
    const auto gathered = gathered_operators(/*reset=*/true);
    EXPECT_EQ(gathered.size(), 1);
    EXPECT_EQ(gathered.at("aten::cumprod"), 1);
    EXPECT_TRUE(gathered_operators().empty());
    EXPECT_THAT(ThrownMessage([&] {
                  const StrictLayouts strict;
                  at::cumprod(parts, 0);
                }),
                HasSubstr("aten::cumprod has no rule for activations that lie "
                          "in parts as [4, 4] shard(0)"));
    EXPECT_THAT(ThrownMessage([&] { parts.detach().cumprod_(0); }),
                HasSubstr("writes into an activation that lies in parts"));
  });
}

// A slice along a dimension that is not cut is a view, and writes reach the
// whole.
TEST(Sharded, WritesIntoSlices) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::Tensor x = torch::randn({4, 6}).requires_grad_();
    const at::Tensor written = torch::randn({4, 2}).requires_grad_();
    const auto write = [&](const at::Tensor& from) {
      at::Tensor y = from.clone();
      y.narrow(1, 1, 2).add_(written);
      y.select(1, 5).mul_(3);
      return y;
    };
    const at::Tensor expected = write(x);
    const at::Tensor actual =
        GatherWhole(write(InParts(x, Layout::Shard(0), axis)), axis);
    EXPECT_TRUE(at::equal(actual, expected));
    const auto want =
        torch::autograd::grad({expected.pow(2).sum()}, {x, written});
    const auto got = torch::autograd::grad({actual.pow(2).sum()}, {x, written});
    EXPECT_TRUE(at::allclose(got[0], want[0]));
    EXPECT_TRUE(at::allclose(got[1], want[1]));
  });
}

struct Write {
  std::string name;
  std::vector<int64_t> refused;  // when this dimension is cut
  std::function<void(at::Tensor&)> run;
};

// Writes into a part of an activation [2, 4, 8].
std::vector<Write> Writes() {
  using torch::indexing::Slice;
  const at::Tensor two = torch::full({2, 2, 8}, 5.0);
  return {{"index_put_ of a slice",
           {1},
           [](at::Tensor& y) {
             y.index_put_({Slice(), 0}, torch::full({8}, 5.0));
           }},
          {"index_put_",
           {0, 1, 2},
           [=](at::Tensor& y) {
             y.index_put_({Slice(), torch::tensor({1, 2})}, two);
           }},
          {"index_fill_",
           {0, 1, 2},
           [](at::Tensor& y) { y.index_fill_(1, torch::tensor({0}), 5.0); }},
          {"index_copy_",
           {0, 1, 2},
           [=](at::Tensor& y) {
             y.index_copy_(1, torch::tensor({0, 1}), two);
           }},
          {"scatter_",
           {0, 1, 2},
           [](at::Tensor& y) {
             y.scatter_(1, torch::zeros({2, 1, 8}, torch::kLong), 5.0);
           }},
          {"select",
           {1},
           [](at::Tensor& y) { y.select(1, 0).copy_(torch::ones({8})); }},
          {"slice", {1}, [](at::Tensor& y) { y.slice(1, 2).zero_(); }},
          {"narrow", {1}, [](at::Tensor& y) { y.narrow(1, 0, 3).mul_(2); }},
          {"chunk", {1}, [](at::Tensor& y) { y.chunk(2, 1)[0].add_(1); }},
          {"unbind", {1}, [](at::Tensor& y) { y.unbind(1)[3].mul_(3); }},
          {"split", {1}, [=](at::Tensor& y) { y.split(2, 1)[1].copy_(two); }},
          {"below view",
           {1},
           [](at::Tensor& y) {
             y.view({2, 2, 2, 8}).select(1, 0).zero_();
           }},
          {"below a merged dimension",
           {0, 1},
           [](at::Tensor& y) {
             y.view({8, 8}).narrow(0, 0, 2).zero_();
           }},
          {"below reshape",
           {0, 1, 2},
           [](at::Tensor& y) { y.reshape({64})[3].zero_(); }},
          {"below transpose",
           {1},
           [](at::Tensor& y) { y.transpose(0, 1)[0].zero_(); }},
          {"below detach",
           {1},
           [](at::Tensor& y) { y.detach().select(1, 1).zero_(); }},
          {"below a slice",
           {1},
           [](at::Tensor& y) { y.slice(1, 1).select(1, 0).fill_(2); }},
          {"as an output",
           {0, 1, 2},
           [](at::Tensor& y) {
             at::Tensor part = y.select(1, 0);
             at::neg_out(part, torch::ones({2, 8}));
           }},
          {"masked_fill_", {}, [](at::Tensor& y) {
             y.masked_fill_((torch::arange(4) < 2).view({1, 4, 1}), 5.0);
           }}};
}

// A view along a cut dimension is a copy of gathered parts.
TEST(Sharded, WritesThatWouldBeLostAreRefused) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::NoGradGuard no_grad;
    const at::Tensor x = torch::randn({2, 4, 8});
    for (const int64_t dim : {0, 1, 2}) {
      for (const Write& write : Writes()) {
        SCOPED_TRACE(absl::StrCat(write.name, " where ", dim, " is cut"));
        at::Tensor want = x.clone();
        at::Tensor got = InParts(x, Layout::Shard(dim), axis).clone();
        if (std::count(write.refused.begin(), write.refused.end(), dim) == 0) {
          write.run(want);
          write.run(got);
        } else {
          const std::string error = ThrownMessage([&] { write.run(got); });
          EXPECT_THAT(error, HasSubstr("an activation that lies in parts as "));
          EXPECT_THAT(error, HasSubstr("rite into fsdp::full_tensor(x)"));
        }
        EXPECT_TRUE(at::equal(GatherWhole(got, axis), want));
      }
    }
  });
}

TEST(Sharded, PlainTensorsGetWholeValues) {
  using torch::indexing::Slice;
  const std::vector<
      std::pair<std::string, void (*)(at::Tensor&, const at::Tensor&)>>
      ways{{"copy_", [](at::Tensor& p, const at::Tensor& h) { p.copy_(h); }},
           {"add_", [](at::Tensor& p, const at::Tensor& h) { p.add_(h); }},
           {"narrow", [](at::Tensor& p,
                         const at::Tensor& h) { p.narrow(1, 0, 4).copy_(h); }},
           {"index_put_ of a slice",
            [](at::Tensor& p, const at::Tensor& h) {
              p.index_put_({Slice(), Slice(0, 4)}, h);
            }},
           {"index_put_",
            [](at::Tensor& p, const at::Tensor& h) {
              p.index_put_({Slice(), torch::arange(4)}, h);
            }},
           {"lerp_",
            [](at::Tensor& p, const at::Tensor& h) {
              p.lerp_(h.mean(std::vector<int64_t>{0, 1}), 0.1);
            }},
           {"an output",
            [](at::Tensor& p, const at::Tensor& h) { at::add_out(p, h, h); }}};
  RunOnAxes(2, [&](const AxisPtr& axis) {
    const at::NoGradGuard no_grad;
    const at::Tensor x = torch::randn({2, 4, 8});
    for (const auto& [name, write] : ways) {
      for (const int64_t dim : {0, 1, 2}) {
        SCOPED_TRACE(absl::StrCat(name, " where ", dim, " is cut"));
        at::Tensor want = torch::zeros({2, 4, 8});
        at::Tensor got = torch::zeros({2, 4, 8});
        write(want, x);
        write(got, InParts(x, Layout::Shard(dim), axis));
        EXPECT_TRUE(at::allclose(got, want));
      }
    }
  });
}

TEST(Sharded, CopiesOfViewsCanBeRead) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    const at::Tensor x = torch::randn({2, 4, 8}).requires_grad_();
    const at::Tensor y = InParts(x, Layout::Shard(1), axis) * 2;
    const at::Tensor first = y.select(1, 0);
    at::Tensor changed = first.clone();
    changed.mul_(3);
    const at::Tensor sum = (first.t().sigmoid() + changed.t()).sum();
    const at::Tensor grad = torch::autograd::grad({sum}, {x})[0];
    const at::Tensor want = torch::autograd::grad(
        {((x * 2).select(1, 0).sigmoid() + x.select(1, 0) * 6).sum()}, {x})[0];
    EXPECT_TRUE(at::allclose(grad, want));
    // On one device, both would change.
    const at::NoGradGuard no_grad;
    at::Tensor written = y.detach();
    const at::Tensor before = written.select(1, 0);
    written.mul_(2);
    EXPECT_THAT(ThrownMessage([&] { before.sum(); }),
                HasSubstr("has been written into since"));
    EXPECT_TRUE(at::allclose(written.select(1, 0), x.select(1, 0) * 4));
  });
}

// Under two axes a part is itself in parts.
TEST(Sharded, TwoAxesOfOneMesh) {
  RunRanks(4, [] {
    StartRankInDouble();
    InstallHandler();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"cp", "tp"});
    const AxisPtr cp = InternAxis(mesh["cp"]);
    const AxisPtr tp = InternAxis(mesh["tp"]);
    EXPECT_EQ(cp, InternAxis(mesh["cp"]));
    EXPECT_LT(cp->level, tp->level);
    for (const Layout& outer : {Layout::Shard(0), Layout::Partial()}) {
      for (const Layout& inner :
           {Layout::Shard(0), Layout::Shard(1), Layout::Partial()}) {
        torch::manual_seed(1);
        const at::Tensor x = torch::randn({5, 6}).requires_grad_();
        const at::Tensor w = torch::randn({6, 3}).requires_grad_();
        const at::Tensor expected = torch::relu(at::matmul(x, w) + 1);
        const Sizes whole = {5, 6};
        const at::Tensor part = Move(x, Layout::Same(), outer, whole, cp);
        const at::Tensor parts =
            Wrap(InParts(part, inner, tp), outer, cp, whole);
        const at::Tensor result = torch::relu(at::matmul(parts, w) + 1);
        const at::Tensor full = GatherWhole(GatherWhole(result, cp), tp);
        const std::string what =
            absl::StrCat(to_string(outer), " and ", to_string(inner));
        ASSERT_EQ(AsSharded(full), nullptr) << what;
        EXPECT_TRUE(at::allclose(full, expected)) << what;
        const auto want =
            torch::autograd::grad({expected.pow(2).sum()}, {x, w});
        const auto got = torch::autograd::grad({full.pow(2).sum()}, {x, w});
        EXPECT_TRUE(at::allclose(got[0], want[0])) << what;
        EXPECT_TRUE(at::allclose(got[1], want[1])) << what;
        if (!outer.is_shard()) continue;
        // The copy that the outer axis has gathered is still in parts.
        at::Tensor y = parts.detach();
        EXPECT_THAT(ThrownMessage([&] { y.select(0, 0).zero_(); }),
                    HasSubstr("writes into the result of aten::select"));
      }
    }
  });
}

// Three projections on one input move it once, and so do their gradients.
TEST(Sharded, SeveralUsesMoveOnce) {
  RunOnAxes(2, [](const AxisPtr& axis) {
    testing::CountingBackend& counts = Count(axis->group);
    const at::Tensor x = torch::randn({4, 6}).requires_grad_();
    const at::Tensor w = InParts(torch::randn({6, 6}), Layout::Shard(1), axis);
    const at::Tensor y = x * 2;
    counts.Reset();
    const at::Tensor sum = at::matmul(y, w) + at::matmul(y, w);
    AsSharded(sum)->local.sum().backward();
    EXPECT_EQ(counts.ToString(), "all_reduce 1");
    const at::Tensor parts = InParts(x, Layout::Shard(0), axis);
    counts.Reset();
    const at::Tensor again = at::matmul(parts, w) + at::matmul(parts, w);
    AsSharded(again)->local.sum().backward();
    EXPECT_EQ(counts.calls("reduce_scatter"), 1);
    EXPECT_EQ(counts.calls("all_gather"), 2);  // forward's, and the cut's
  });
}

TEST(Sharded, RefusesAMeshWithTwoAxes) {
  RunRanks(2, [] {
    StartRankInDouble();
    EXPECT_THAT(ThrownMessage([] {
                  InternAxis(init_device_mesh("cpu", {2, 1}, {"a", "b"}));
                }),
                HasSubstr("slice it, as in mesh[\"tp\"]"));
  });
}

}  // namespace
}  // namespace fsdp::spmd
