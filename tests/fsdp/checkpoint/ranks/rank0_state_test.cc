// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/rank0_state.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/save/coordinator.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<ProcessGroupCoordinator> Coordinator() {
  return *ProcessGroupCoordinator::ForTraining(nullptr);
}

// A destination shaped like `whole`, with another type if asked for.
TensorCopy MakeCopy(const std::string& name, const torch::Tensor& whole,
                    const DeviceMesh* mesh, const Placements& placements,
                    at::ScalarType type) {
  TensorCopy copy{.name = name, .dst = {}, .spec = {}, .src = whole};
  if (mesh == nullptr) {
    copy.dst = torch::zeros(whole.sizes(), type);
    return copy;
  }
  copy.spec = DTensorSpec{.mesh = *mesh,
                          .placements = placements,
                          .shape = whole.sizes().vec(),
                          .stride = whole.strides().vec()};
  copy.dst = torch::zeros(copy.spec->local_shape(), type);
  return copy;
}

// Expects the parts that a rank must have in the end, cut from the whole
// tensor.
void ExpectParts(const TensorCopy& copy, const torch::Tensor& whole) {
  const auto parts = FindDestinationParts(copy);
  ASSERT_OK(parts.status());
  int64_t num_elements = 0;
  for (const LocalPart& part : *parts) {
    EXPECT_TRUE(torch::equal(
        part.local, BoxView(whole, part.box).to(part.local.scalar_type())))
        << copy.name;
    num_elements += part.local.numel();
  }
  EXPECT_EQ(num_elements, copy.dst.numel()) << copy.name;
}

TEST(Rank0State, EachRankGetsItsPartsThroughWindows) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh(c10::kCPU, {2, 2}, {"a", "b"});
    torch::manual_seed(1);
    const torch::Tensor big = torch::rand({301, 130});  // more than a window
    const torch::Tensor transposed = torch::rand({40, 13}).t();
    struct Entry {
      torch::Tensor whole;
      const DeviceMesh* mesh;
      Placements placements;
      at::ScalarType type;
    };
    const std::vector<Entry> entries = {
        {big, &mesh, {Shard(0), Shard(1)}, at::kFloat},
        // Rows that are not adjacent.
        {transposed, &mesh, {StridedShard(0, 2), Shard(0)}, at::kFloat},
        {big.to(at::kBFloat16), &mesh, {Replicate(), Shard(0)}, at::kFloat},
        {big, &mesh, {Replicate(), Replicate()}, at::kDouble},
        {torch::rand({3}), &mesh, {Shard(0), Shard(0)}, at::kFloat},
        {torch::arange(10), nullptr, {}, at::kLong},
        {torch::tensor(5.0), nullptr, {}, at::kFloat},
        {torch::zeros({0, 3}), &mesh, {Shard(0), Replicate()}, at::kFloat},
        {torch::ones({5, 2}, at::kBool),
         &mesh,
         {Shard(1), Shard(0)},
         at::kBool},
        {torch::rand({2, 3}, at::kComplexDouble),
         nullptr,
         {},
         at::kComplexDouble},
    };
    StateDict state;
    for (size_t i = 0; i < entries.size(); ++i) {
      state[std::to_string(i)] = entries[i].whole;
    }
    const auto shared =
        ShareRank0State(*Coordinator(), get_rank() == 0 ? state : StateDict());
    ASSERT_OK(shared.status());
    for (const uint64_t window_bytes : {1u, 200000u, 1u << 26}) {
      std::vector<TensorCopy> copies;
      for (size_t i = 0; i < entries.size(); ++i) {
        const std::string name = std::to_string(i);
        copies.push_back(MakeCopy(name, entries[i].whole, entries[i].mesh,
                                  entries[i].placements, entries[i].type));
        copies.back().src = *shared->find(name);
        const auto& src = *copies.back().src.get_if<at::Tensor>();
        EXPECT_EQ(src.is_meta(), get_rank() != 0);
        EXPECT_EQ(src.scalar_type(), entries[i].whole.scalar_type());
      }
      ASSERT_OK(CopyFromRank0(*Coordinator(), copies, window_bytes));
      for (size_t i = 0; i < entries.size(); ++i) {
        ExpectParts(copies[i], entries[i].whole);
      }
    }
  });
}

TEST(Rank0State, PlainValuesAndShapesReachAll) {
  RunRanks(2, [] {
    init_process_group();
    StateDict state;
    if (get_rank() == 0) {
      state = {{"dict", StateDict({{"none", StateValue()}, {"yes", true}})},
               {"list", StateList{1, "two", torch::zeros({2, 3}, at::kHalf)}},
               {"tuple", StateTuple{{0.5, StateBytes{"b"}}}}};
    }
    const auto shared = ShareRank0State(*Coordinator(), state);
    ASSERT_OK(shared.status());
    const auto& dict = *shared->find("dict")->get_if<StateDict>();
    EXPECT_TRUE(dict.find("none")->is_none());
    EXPECT_TRUE(*dict.find("yes")->get_if<bool>());
    const auto& list = *shared->find("list")->get_if<StateList>();
    EXPECT_EQ(*list[0].get_if<int64_t>(), 1);
    EXPECT_EQ(*list[1].get_if<std::string>(), "two");
    EXPECT_EQ(list[2].get_if<at::Tensor>()->sizes(),
              (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(list[2].get_if<at::Tensor>()->scalar_type(), at::kHalf);
    const auto& tuple = *shared->find("tuple")->get_if<StateTuple>();
    EXPECT_EQ(*tuple.items[0].get_if<double>(), 0.5);
    EXPECT_EQ(tuple.items[1].get_if<StateBytes>()->bytes, "b");
  });
}

TEST(Rank0State, ReportsRanksWithDifferentTensors) {
  RunRanks(3, [] {
    init_process_group();
    const torch::Tensor whole = torch::ones({4});
    std::vector<TensorCopy> copies = {
        MakeCopy("a", whole, nullptr, {}, at::kFloat),
        MakeCopy(get_rank() == 2 ? "c" : "b", whole, nullptr, {}, at::kFloat)};
    EXPECT_THAT(CopyFromRank0(*Coordinator(), copies, 1 << 20),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 2 asks for c"),
                               HasSubstr("rank 0 for b"))));
    copies.resize(1);
    EXPECT_OK(CopyFromRank0(*Coordinator(), copies, 1 << 20));
    EXPECT_TRUE(torch::equal(copies[0].dst, whole));
  });
}

// The test plays rank 0, which answers with something else.
TEST(Rank0State, MalformedAnswerIsAnError) {
  RunRanks(2, [] {
    init_process_group();
    const auto ranks = Coordinator();
    const std::vector<TensorCopy> copies = {
        MakeCopy("a", torch::ones({4}), nullptr, {}, at::kFloat)};
    for (const std::string answer :
         {"", "65536", "65536 ", "65536 11", "65536 2", "x 1", "0 1", "-1 1",
          "99999999999 1"}) {
      absl::Status status;
      if (ranks->rank() == 0) {
        ASSERT_OK(dcp::Agree(*ranks, absl::OkStatus()));
        ASSERT_OK(ranks->Gather(""));
        ASSERT_OK(dcp::Agree(*ranks, absl::OkStatus()));
        ASSERT_OK(ranks->Broadcast(answer));
        status = dcp::Agree(*ranks, absl::OkStatus());
      } else {
        status = CopyFromRank0(*ranks, copies, 1 << 20);
      }
      EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss,
                                   AllOf(HasSubstr("rank 1: rank 0 must"),
                                         HasSubstr(answer))))
          << answer;
    }
  });
}

TEST(Rank0State, MalformedRequestIsAnError) {
  RunRanks(2, [] {
    init_process_group();
    const auto ranks = Coordinator();
    const std::vector<TensorCopy> copies = {
        MakeCopy("a", torch::ones({4}), nullptr, {}, at::kFloat)};
    absl::Status status;
    if (ranks->rank() == 1) {
      ASSERT_OK(dcp::Agree(*ranks, absl::OkStatus()));
      ASSERT_OK(ranks->Gather("nonsense"));
      status = dcp::Agree(*ranks, absl::OkStatus());
    } else {
      status = CopyFromRank0(*ranks, copies, 1 << 20);
    }
    EXPECT_FALSE(status.ok());
    EXPECT_OK(dcp::Agree(*ranks, absl::OkStatus()));
  });
}

// A destination that takes nothing; the other ranks must not be left waiting.
TEST(Rank0State, FailedCopyIsAnErrorOnAllRanks) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh(c10::kCPU, {2}, {"a"});
    std::vector<TensorCopy> copies = {
        MakeCopy("w", torch::rand({300, 300}), &mesh, {Shard(0)}, at::kFloat)};
    if (get_rank() == 1) {
      copies[0].dst = torch::zeros({1}).expand(copies[0].dst.sizes());
    }
    EXPECT_THAT(
        CopyFromRank0(*Coordinator(), copies, 1),
        StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 1: ")));
  });
}

}  // namespace
}  // namespace fsdp
