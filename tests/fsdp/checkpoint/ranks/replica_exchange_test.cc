// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/replica_exchange.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReplicaExchange, EachTensorIsReadOnceAndReachesAll) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    StateDict state;
    std::vector<double> expected;
    const auto add = [&](const at::Tensor& whole, const Placements& p) {
      const std::string name = absl::StrCat("t", expected.size());
      state[name] = distribute_tensor(whole, mesh, p, std::nullopt);
      expected.push_back(1.0 + static_cast<double>(expected.size()));
    };
    for (const int64_t rows : {3, 8, 600}) {
      // 600 x 1000 floats travel alone, the others together; windows of 1 MB
      // cut both.
      add(at::zeros({rows, 1000}), {Replicate(), Replicate()});
      add(at::zeros({rows, 1000}), {Replicate(), Shard(0)});
      add(at::zeros({rows, 1000}), {Shard(0), Replicate()});
      add(at::zeros({rows, 1000}), {Shard(0), Shard(1)});
    }
    state["plain"] = at::zeros({5, 7}).t();
    expected.push_back(99);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<LoadTargets> wanted,
                         MakeLoadTargets(state));
    ASSERT_OK_AND_ASSIGN(
        ReplicaExchange exchange,
        ReplicaExchange::Make(wanted.get(), world_group(), true));
    ASSERT_OK(exchange.Meet(*ranks, absl::OkStatus()));
    at::Tensor volume = at::zeros({1}, at::kLong);
    for (size_t i = 0; i < wanted->tensors.size(); ++i) {
      if (!exchange.Reads(i)) continue;
      wanted->tensors[i].local.fill_(expected[i]);
      volume += wanted->tensors[i].local.numel();
    }
    for (size_t step = 0; step < exchange.num_steps(); ++step) {
      ASSERT_OK(exchange.Run(step, {}, 1 << 20));
    }
    for (size_t i = 0; i < wanted->tensors.size(); ++i) {
      const at::Tensor& local = wanted->tensors[i].local;
      EXPECT_TRUE(at::equal(local, at::full_like(local, expected[i]))) << i;
    }
    std::vector<at::Tensor> sum{volume};
    world_group()->allreduce(sum)->wait();
    EXPECT_EQ(volume.item<int64_t>(), 4 * 611 * 1000 + 35);
  });
}

TEST(ReplicaExchange, DifferentTargetsAreNotExchanged) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    const bool is_first = get_rank() == 0;
    for (const bool differ : {false, true}) {
      const std::string name = differ && is_first ? "x" : "a";
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<LoadTargets> wanted,
                           MakeLoadTargets({{name, at::zeros({3})}}));
      ASSERT_OK_AND_ASSIGN(
          ReplicaExchange exchange,
          ReplicaExchange::Make(wanted.get(), world_group(), true));
      ASSERT_OK(exchange.Meet(*ranks, absl::OkStatus()));
      EXPECT_EQ(exchange.Reads(0), differ || is_first);
      for (size_t step = 0; step < exchange.num_steps(); ++step) {
        EXPECT_OK(exchange.Run(step, {}, 1 << 20));
      }
    }
  });
}

TEST(ReplicaExchange, ReplicasWithOneCacheReadForThemselves) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<LoadTargets> wanted,
                         MakeLoadTargets({{"a", at::zeros({3})}}));
    const bool is_first = get_rank() == 0;
    const auto reads = [&](const std::string& cached_as) {
      absl::StatusOr<ReplicaExchange> exchange =
          ReplicaExchange::Make(wanted.get(), world_group(), true);
      EXPECT_OK(exchange.status());
      EXPECT_OK(exchange->Meet(*ranks, absl::OkStatus(), cached_as));
      return exchange->Reads(0);
    };
    EXPECT_TRUE(reads("host:1"));
    EXPECT_EQ(reads(is_first ? "host:1" : "host:2"), is_first);
    EXPECT_EQ(reads(is_first ? "" : "host:1"), is_first);
    EXPECT_EQ(reads(""), is_first);
  });
}

TEST(ReplicaExchange, ReportsEachRanksError) {
  RunRanks(3, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    ASSERT_OK_AND_ASSIGN(ReplicaExchange exchange,
                         ReplicaExchange::Make(nullptr, nullptr, true));
    const int64_t rank = get_rank();
    EXPECT_THAT(
        exchange.Meet(*ranks, rank == 1 ? absl::NotFoundError("lacks\nb")
                                        : absl::DataLossError("torn")),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr("ranks 0, 2: torn"),
                       HasSubstr("rank 1: lacks\nb"))));
    EXPECT_OK(exchange.Meet(*ranks, absl::OkStatus()));
  });
}

}  // namespace
}  // namespace fsdp
