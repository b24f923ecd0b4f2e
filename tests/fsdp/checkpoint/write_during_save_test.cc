// SPDX-License-Identifier: Apache-2.0
// Operators that write into a state while a background save still copies it:
// they wait, so that the save has the values at the call.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_add.h"
#include "ATen/ops/add.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/zeros_like.h"
#include "ATen/record_function.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"

namespace fsdp {
namespace {

using ::dcp::testing::TempDir;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;

// More than the smallest pool, through which it streams to the disk.
at::Tensor Streamed(double value) { return at::full({6 << 20}, value); }

// Saves `state`, which is more than the smallest pool holds, and calls `write`
// on this thread. The save cannot touch a file, and so not copy everything,
// until `write` waits for it or has returned. Returns whether `write` waited.
bool WriteDuringSave(const StateDict& state, const std::string& path,
                     const std::function<void()>& write) {
  const std::unique_ptr<dcp::FileSystem> disk = dcp::NewPosixFileSystem();
  absl::Notification is_open;
  dcp::testing::HookedStorage gate(*disk, [&] {
    is_open.WaitForNotification();
    return absl::OkStatus();
  });
  AsyncSaver saver(
      {.staging_bytes = dcp::kMinMemoryBytes, .file_system = &gate});
  absl::StatusOr<SaveHandle> save = saver.save(state, path);
  EXPECT_OK(save.status());
  if (!save.ok()) return false;
  std::atomic<bool> has_written = false;
  bool waited = false;
  std::thread opener([&] {
    const double before = save->report().stalled_seconds;
    while (!has_written && !waited) {
      std::this_thread::yield();
      waited = save->report().stalled_seconds > before;
    }
    is_open.Notify();
  });
  write();
  has_written = true;
  opener.join();
  EXPECT_OK(save->wait());
  return waited;
}

double LargestLoaded(const std::string& path, const at::Tensor& like) {
  StateDict state{{"a", at::zeros_like(like)}};
  EXPECT_OK(load(state, path));
  const at::Tensor& a = *state.find("a")->get_if<at::Tensor>();
  EXPECT_EQ(a.min().item<double>(), a.max().item<double>());
  return a.max().item<double>();
}

TEST(WriteDuringSave, OperatorsWaitForPendingCopies) {
  const TempDir dir;
  const at::Tensor other = Streamed(5);
  ASSERT_OK(save({{"a", other}}, dir.Join("other")));
  const std::vector<
      std::pair<std::string, std::function<void(const at::Tensor&)>>>
      ways{{"in place", [](const at::Tensor& a) { a.add_(1); }},
           {"a view",
            [](const at::Tensor& a) {
              a.view({2, -1}).select(0, 1).zero_();
            }},
           {"data()", [](const at::Tensor& a) { a.data().mul_(3); }},
           {"an output",
            [](const at::Tensor& a) {
              at::Tensor out = a;
              at::add_out(out, a, a);
            }},
           {"a list", [](const at::Tensor& a) { at::_foreach_add_({a}, 1); }},
           {"a load", [&](const at::Tensor& a) {
              StateDict state{{"a", a}};
              EXPECT_OK(load(state, dir.Join("other")));
            }}};
  for (const auto& way : ways) {
    SCOPED_TRACE(way.first);
    const std::string path = dir.Join(way.first);
    const at::Tensor a = Streamed(1);
    EXPECT_TRUE(
        WriteDuringSave({{"a", a}}, path, [&way, &a] { way.second(a); }));
    EXPECT_EQ(LargestLoaded(path, a), 1);
    EXPECT_NE(a.max().item<double>() + a.min().item<double>(), 2);
  }
  // Nothing watches operators any more.
  EXPECT_FALSE(at::hasGlobalCallbacks());
}

// Their operators do not declare that they write.
TEST(WriteDuringSave, CollectivesWait) {
  RunRanks(2, [] {
    init_process_group();
    const at::Tensor half = at::full({3 << 20}, 7.0 + get_rank());
    const std::vector<std::pair<std::string, std::function<void(at::Tensor&)>>>
        ways{{"broadcast",
              [&](at::Tensor& a) {
                std::vector<at::Tensor> tensors{a};
                world_group()->broadcast(tensors)->wait();
              }},
             {"all-gather",
              [&](at::Tensor& a) {
                at::Tensor part = half;
                world_group()->_allgather_base(a, part)->wait();
              }},
             {"all-gather into a list", [&](at::Tensor& a) {
                std::vector<std::vector<at::Tensor>> parts{a.chunk(2)};
                std::vector<at::Tensor> part{half};
                world_group()->allgather(parts, part)->wait();
              }}};
    for (const auto& way : ways) {
      SCOPED_TRACE(way.first);
      at::Tensor a = Streamed(get_rank() + 1);
      const std::string path = absl::StrCat(SharedDir(), "/", way.first);
      EXPECT_TRUE(WriteDuringSave({{absl::StrCat("a", get_rank()), a}}, path,
                                  [&way, &a] { way.second(a); }));
      StateDict state{{absl::StrCat("a", get_rank()), at::zeros_like(a)}};
      ASSERT_OK(load(state, path));
      EXPECT_TRUE(at::equal(*state.begin()->second.get_if<at::Tensor>(),
                            Streamed(get_rank() + 1)));
      EXPECT_FALSE(at::equal(a, Streamed(2)));
    }
  });
}

// BatchNorm's kernel does not declare that it writes. Statistics for few
// channels are copied before save returns.
TEST(WriteDuringSave, AForwardMayChangeRunningStatistics) {
  const TempDir dir;
  for (const int64_t channels : {4, 20'000}) {
    const bool is_small = channels == 4;
    torch::nn::BatchNorm1d norm(channels);
    torch::nn::BatchNorm1d loaded(channels);
    const auto state = [](torch::nn::BatchNorm1d& model) {
      return StateDict{{"a", Streamed(1)},
                       {"norm", *get_model_state_dict(*model)}};
    };
    const at::Tensor batch = at::full({2, channels}, 3.0).cumsum(0);
    for (int64_t step = 0; step < 2; ++step) {
      const at::Tensor mean = norm->running_mean.clone();
      const at::Tensor var = norm->running_var.clone();
      const std::string path = dir.Join(absl::StrCat(channels, "_", step));
      EXPECT_EQ(
          WriteDuringSave(state(norm), path, [&] { norm->forward(batch); }),
          !is_small);
      StateDict target = state(loaded);
      ASSERT_OK(load(target, path));
      EXPECT_TRUE(at::equal(loaded->running_mean, mean)) << step;
      EXPECT_TRUE(at::equal(loaded->running_var, var)) << step;
      EXPECT_EQ(loaded->num_batches_tracked.item<int64_t>(), step);
      EXPECT_FALSE(at::equal(norm->running_mean, mean));
    }
  }
}

// As PyTorch allows.
TEST(WriteDuringSave, AStepMayFollowAtOnce) {
  RunRanks(2, [] {
    init_process_group();
    const auto make = [](bool fused, const std::vector<at::Tensor>& parameters)
        -> std::unique_ptr<torch::optim::Optimizer> {
      if (fused) return std::make_unique<FusedAdamW>(parameters);
      return std::make_unique<torch::optim::Adam>(parameters);
    };
    const auto state = [](torch::nn::Linear& model,
                          torch::optim::Optimizer& optimizer) {
      return StateDict{{"model", *get_model_state_dict(*model)},
                       {"optim", *get_optimizer_state_dict(*model, optimizer)}};
    };
    for (const bool fused : {false, true}) {
      torch::nn::Linear model(2048, 2048), loaded(2048, 2048);
      fully_shard(model);
      fully_shard(loaded);
      const auto optimizer = make(fused, model->parameters());
      const auto reader = make(fused, loaded->parameters());
      for (at::Tensor& p : model->parameters()) {
        const at::NoGradGuard no_grad;
        p.fill_(1);
        p.mutable_grad() = at::ones_like(p);
      }
      const std::string path = absl::StrCat(SharedDir(), "/", fused);
      EXPECT_TRUE(WriteDuringSave(state(model, *optimizer), path,
                                  [&] { optimizer->step(); }));
      StateDict target = state(loaded, *reader);
      ASSERT_OK(load(target, path));
      for (const at::Tensor& p : loaded->parameters()) {
        EXPECT_EQ(p.detach().sub(1).abs().max().item<double>(), 0) << fused;
      }
      const auto states = get_optimizer_state_dict(*loaded, *reader);
      const StateDict& weight = *states->find("state")
                                     ->get_if<StateDict>()
                                     ->find("weight")
                                     ->get_if<StateDict>();
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        const at::Tensor local =
            weight.find(moment)->get_if<DTensor>()->to_local();
        EXPECT_EQ(local.abs().max().item<double>(), 0) << moment << fused;
      }
      EXPECT_EQ(weight.find("step")->get_if<at::Tensor>()->item<double>(), 0);
    }
  });
}

}  // namespace
}  // namespace fsdp
