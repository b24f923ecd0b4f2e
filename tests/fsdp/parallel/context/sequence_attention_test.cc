// SPDX-License-Identifier: Apache-2.0
// Ring attention and attention by heads, compared with one process.

#include "fsdp/parallel/spmd/rules/sequence_attention.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/context/block_attention.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/parallel/spmd/handler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using spmd::CausalTiles;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One attention: lengths of the sequences, and heads.
struct Shape {
  int64_t num_queries = 16;
  int64_t num_keys = 16;
  int64_t heads = 12;
  int64_t key_heads = 12;
  int64_t value_size = 4;
};

struct Case {
  Shape shape = {};
  bool is_causal = false;
  bool load_balance = false;
  std::string method = "alltoall";
  c10::ScalarType dtype = torch::kDouble;
  double tolerance = 1e-10;

  std::string name() const {
    return c10::str(method, " of ", shape.num_queries, " by ", shape.num_keys,
                    ", heads ", shape.heads, " and ", shape.key_heads,
                    is_causal ? ", causal" : "",
                    load_balance ? ", balanced" : "", ", ", dtype);
  }
};

std::vector<torch::Tensor> MakeInputs(const Shape& shape,
                                      c10::ScalarType dtype) {
  torch::manual_seed(5);
  const auto make = [&](int64_t heads, int64_t length, int64_t size) {
    return torch::randn({2, heads, length, size}, torch::kDouble)
        .to(dtype)
        .set_requires_grad(true);
  };
  return {make(shape.heads, shape.num_queries, 4),
          make(shape.key_heads, shape.num_keys, 4),
          make(shape.key_heads, shape.num_keys, shape.value_size)};
}

torch::Tensor Attend(const std::vector<torch::Tensor>& x, bool is_causal,
                     const std::optional<torch::Tensor>& mask = std::nullopt,
                     double dropout = 0) {
  const bool is_grouped = x[0].dim() > 2 && x[0].size(-3) != x[1].size(-3);
  return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, dropout,
                                          is_causal, 0.7, is_grouped);
}

// The value and the inputs' gradients.
std::vector<torch::Tensor> Results(const std::vector<torch::Tensor>& inputs,
                                   const torch::Tensor& out) {
  const torch::Tensor whole = full_tensor(out);
  const torch::Tensor weights =
      torch::linspace(-1, 1, whole.numel(), torch::kDouble)
          .view(whole.sizes())
          .to(whole.scalar_type());
  (whole * weights).sum().backward();
  std::vector<torch::Tensor> results{whole.detach()};
  for (const torch::Tensor& input : inputs) {
    results.push_back(full_tensor(input.grad()));
  }
  return results;
}

std::vector<torch::Tensor> InParts(const std::vector<torch::Tensor>& inputs,
                                   const DeviceMesh& cp, const Case& c) {
  std::vector<torch::Tensor> parts = inputs;
  context_parallel(
      cp, {&parts[0], &parts[1], &parts[2]},
      {.seq_dim = 2, .load_balance = c.load_balance, .method = c.method});
  return parts;
}

void ExpectEqualsOneProcess(const DeviceMesh& cp, const Case& c) {
  const std::vector<torch::Tensor> whole = MakeInputs(c.shape, torch::kDouble);
  const std::vector<torch::Tensor> expected =
      Results(whole, Attend(whole, c.is_causal));
  const std::vector<torch::Tensor> inputs = MakeInputs(c.shape, c.dtype);
  const spmd::StrictLayouts nothing_gathers;
  const std::vector<torch::Tensor> results =
      Results(inputs, Attend(InParts(inputs, cp, c), c.is_causal));
  const char* const names[] = {"out", "dq", "dk", "dv"};
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].scalar_type(), c.dtype);
    const double error = (results[i].to(torch::kDouble) - expected[i])
                             .abs()
                             .max()
                             .item<double>();
    EXPECT_LE(error, c.tolerance * expected[i].abs().max().item<double>())
        << names[i] << " of " << c.name();
  }
}

std::vector<Case> Cases(int64_t ranks) {
  std::vector<Case> cases;
  for (const bool is_causal : {false, true}) {
    cases.push_back({.is_causal = is_causal});
    cases.push_back({.is_causal = is_causal, .method = "ulysses"});
    const Shape even{
        .num_queries = 8 * ranks, .num_keys = 8 * ranks, .key_heads = 4};
    cases.push_back(
        {.shape = even, .is_causal = is_causal, .load_balance = true});
    // Lengths that the ranks do not divide, down to ranks without any.
    for (const int64_t length : {1, 7, 10}) {
      const Shape uneven{
          .num_queries = length, .num_keys = length, .key_heads = 6};
      cases.push_back({.shape = uneven, .is_causal = is_causal});
    }
    // A head size that the CPU's kernel does not take.
    cases.push_back(
        {.shape = {.key_heads = 3, .value_size = 6}, .is_causal = is_causal});
    cases.push_back({.shape = even,
                     .is_causal = is_causal,
                     .load_balance = true,
                     .dtype = torch::kFloat,
                     .tolerance = 2e-6});
    cases.push_back({.shape = even,
                     .is_causal = is_causal,
                     .load_balance = true,
                     .dtype = torch::kBFloat16,
                     .tolerance = 2e-2});
  }
  const Shape balanced{.num_queries = 4 * ranks, .num_keys = 4 * ranks};
  cases.push_back({.shape = balanced,
                   .is_causal = true,
                   .load_balance = true,
                   .method = "ulysses"});
  cases.push_back({.shape = {.num_queries = 5, .num_keys = 11}});
  cases.push_back({.shape = {.num_queries = 5, .num_keys = 11},
                   .is_causal = true,
                   .method = "ulysses"});
  cases.push_back({.shape = {.heads = 24, .key_heads = 12},
                   .is_causal = true,
                   .method = "ulysses"});
  return cases;
}

void ExpectCasesEqual(int ranks) {
  RunRanks(ranks, [ranks] {
    StartRank();
    const DeviceMesh cp = init_device_mesh("cpu", {ranks}, {"cp"});
    for (const Case& c : Cases(ranks)) ExpectEqualsOneProcess(cp, c);
  });
}

TEST(SequenceAttention, OfOneRankEqualsPlainAttention) { ExpectCasesEqual(1); }
TEST(SequenceAttention, OfTwoRanksEqualsOneProcess) { ExpectCasesEqual(2); }
TEST(SequenceAttention, OfThreeRanksEqualsOneProcess) { ExpectCasesEqual(3); }
TEST(SequenceAttention, OfFourRanksEqualsOneProcess) { ExpectCasesEqual(4); }

// Tiles of the plain formula, of which a test with short sequences has one.
TEST(SequenceAttention, PlainFormulaByTilesEqualsTheKernel) {
  for (const bool is_causal : {false, true}) {
    const BlockForm form{.is_causal = is_causal, .scale = 0.5};
    const std::vector<torch::Tensor> x = MakeInputs(
        {.num_queries = 300, .num_keys = 300, .heads = 2, .key_heads = 1},
        torch::kDouble);
    const torch::NoGradGuard no_grad;
    const AttendedBlock expected = AttendBlock(x[0], x[1], x[2], form);
    // The kernel does not take a last dimension with a stride.
    const torch::Tensor strided = x[0].mT().contiguous().mT();
    const AttendedBlock plain = AttendBlock(strided, x[1], x[2], form);
    EXPECT_TRUE(torch::allclose(plain.out, expected.out, 1e-12, 1e-12));
    EXPECT_TRUE(torch::allclose(plain.lse, expected.lse, 1e-12, 1e-12));
    const torch::Tensor grad = torch::randn_like(expected.out);
    const BlockGradients want =
        AttendBlockBackward(grad, x[0], x[1], x[2], expected, form);
    const BlockGradients got =
        AttendBlockBackward(grad, strided, x[1], x[2], expected, form);
    EXPECT_TRUE(torch::allclose(got.q, want.q, 1e-11, 1e-11));
    EXPECT_TRUE(torch::allclose(got.k, want.k, 1e-11, 1e-11));
    EXPECT_TRUE(torch::allclose(got.v, want.v, 1e-11, 1e-11));
  }
}

// Under a balanced cut all ranks have the same number of scores.
TEST(SequenceAttention, CausalTilesAreBalanced) {
  const spmd::Layout balanced = spmd::Layout::Shard(0, 1, /*balanced=*/true);
  for (int64_t rank = 0; rank < 4; ++rank) {
    int64_t scores = 0;
    for (int64_t other = 0; other < 4; ++other) {
      if (other == rank) continue;
      const std::vector<RingTile> tiles =
          CausalTiles(spmd::RankPieces(16, balanced, 4, rank),
                      spmd::RankPieces(16, balanced, 4, other));
      // As in PyTorch: all queries use the front keys, or those from the back
      // use all.
      const RingTile expected =
          other < rank ? RingTile{0, 4, 2, false} : RingTile{2, 2, 4, false};
      EXPECT_THAT(tiles, ElementsAre(expected));
      for (const RingTile& tile : tiles)
        scores += tile.q_length * tile.k_length;
    }
    EXPECT_EQ(scores, 3 * 8);
  }
  const spmd::Layout in_order = spmd::Layout::Shard(0);
  const auto pieces = [&](int64_t rank) {
    return spmd::RankPieces(8, in_order, 2, rank);
  };
  EXPECT_THAT(CausalTiles(pieces(0), pieces(1)), IsEmpty());
  EXPECT_THAT(CausalTiles(pieces(1), pieces(0)),
              ElementsAre(RingTile{0, 4, 4, false}));
}

TEST(SequenceAttention, UlyssesTakesAMaskWithAGradient) {
  RunRanks(2, [] {
    StartRank();
    const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
    const Case c{
        .shape = {.num_queries = 7, .num_keys = 7, .heads = 4, .key_heads = 2},
        .method = "ulysses"};
    for (const int64_t mask_heads : {1, 4}) {
      std::vector<std::vector<torch::Tensor>> results;
      for (const bool is_cut : {false, true}) {
        std::vector<torch::Tensor> inputs = MakeInputs(c.shape, c.dtype);
        inputs.push_back(torch::randn({mask_heads, 7, 7}, torch::kDouble)
                             .set_requires_grad(true));
        const std::vector<torch::Tensor> parts =
            is_cut ? InParts(inputs, cp, c) : inputs;
        results.push_back(Results(inputs, Attend(parts, false, inputs[3])));
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(torch::allclose(results[0][i], results[1][i], 1e-10, 1e-12))
            << i << " with " << mask_heads << " heads of the mask";
      }
    }
  });
}

// Recomputation runs the ring inside backward.
TEST(SequenceAttention, CrossesACheckpoint) {
  RunRanks(3, [] {
    StartRank();
    const DeviceMesh cp = init_device_mesh("cpu", {3}, {"cp"});
    for (const char* method : {"alltoall", "ulysses"}) {
      const Case c{.shape = {.num_queries = 12, .num_keys = 12},
                   .is_causal = true,
                   .load_balance = true,
                   .method = method};
      const std::vector<torch::Tensor> whole = MakeInputs(c.shape, c.dtype);
      const std::vector<torch::Tensor> expected =
          Results(whole, Attend(whole, true));
      const std::vector<torch::Tensor> inputs = MakeInputs(c.shape, c.dtype);
      const std::vector<torch::Tensor> out = checkpoint_tensors(
          [](const std::vector<torch::Tensor>& x) {
            return std::vector<torch::Tensor>{Attend(x, true)};
          },
          InParts(inputs, cp, c));
      const std::vector<torch::Tensor> results = Results(inputs, out[0]);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(torch::allclose(results[i], expected[i], 1e-10, 1e-12))
            << i << " of " << method;
      }
    }
  });
}

// What the methods do not take is refused without a collective: the next
// attention works, and gets the other ranks' messages.
TEST(SequenceAttention, RefusesWhatAMethodCannotTake) {
  RunRanks(2, [] {
    StartRank();
    const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
    const auto message = [&](const Case& c, double dropout = 0,
                             std::optional<torch::Tensor> mask = {}) {
      const std::vector<torch::Tensor> inputs = MakeInputs(c.shape, c.dtype);
      return ThrownMessage(
          [&] { Attend(InParts(inputs, cp, c), c.is_causal, mask, dropout); });
    };
    const torch::Tensor mask = torch::zeros({16, 16}, torch::kDouble);
    EXPECT_THAT(message({}, 0, mask),
                AllOf(HasSubstr("takes no attn_mask"), HasSubstr("[16, 16]")));
    for (const char* method : {"alltoall", "ulysses"}) {
      EXPECT_THAT(message({.method = method}, 0.25),
                  AllOf(HasSubstr(method), HasSubstr("dropout_p is 0.25")));
      EXPECT_THAT(message({.shape = {.key_heads = 5}, .method = method}),
                  AllOf(HasSubstr("a multiple of the keys'"),
                        HasSubstr("keys [2, 5, 16, 4]")));
    }
    EXPECT_THAT(
        message({.shape = {.heads = 3, .key_heads = 3}, .method = "ulysses"}),
        HasSubstr("divides the 3 heads of queries among 2 ranks"));
    EXPECT_THAT(
        message({.shape = {.heads = 6, .key_heads = 3}, .method = "ulysses"}),
        HasSubstr("divides the 3 heads of keys among 2 ranks"));
    EXPECT_THAT(message({.shape = {.num_queries = 6}, .is_causal = true}),
                HasSubstr("there are 6 queries that lie as shard(2), and 16"));
    EXPECT_THAT(message({.method = "ring"}),
                HasSubstr("there is no method \"ring\""));
    ExpectEqualsOneProcess(cp, {});
  });
}

TEST(SequenceAttention, HasNoSecondDerivative) {
  RunRanks(2, [] {
    StartRank();
    const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
    const std::vector<torch::Tensor> inputs = MakeInputs({}, torch::kDouble);
    const torch::Tensor out =
        full_tensor(Attend(InParts(inputs, cp, {}), false)).sum();
    EXPECT_THAT(ThrownMessage([&] {
                  out.backward({}, /*retain_graph=*/true,
                               /*create_graph=*/true);
                }),
                HasSubstr("no second derivative"));
  });
}

// A rank with another method, or another attention, gets an error, and so does
// the other one.
TEST(SequenceAttention, RanksThatDifferAreNamed) {
  const auto failures = [](bool differs_in_method) {
    return RankFailures(2, [differs_in_method] {
      StartRank();
      const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
      const bool is_first = get_rank() == 0;
      const Case c{
          .is_causal = is_first && !differs_in_method,
          .method = is_first || !differs_in_method ? "alltoall" : "allgather"};
      const std::vector<torch::Tensor> inputs =
          MakeInputs(c.shape, torch::kDouble);
      Attend(InParts(inputs, cp, c), c.is_causal);
    });
  };
  EXPECT_THAT(failures(true),
              AllOf(SizeIs(2), Contains(HasSubstr("ring attention"))));
  EXPECT_THAT(failures(false), AllOf(SizeIs(2), Contains(HasSubstr("causal"))));
}

}  // namespace
}  // namespace fsdp::testing
