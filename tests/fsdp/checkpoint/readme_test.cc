// SPDX-License-Identifier: Apache-2.0
// Runs the code in fsdp/checkpoint/README.md on two ranks. tests/style/tidy.py
// compares the parts between the marks.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/materialize.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/test_daemon.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adamw.h"

namespace {

using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using Net = ::fsdp::testing::TinyModel;

// [stateful]
// Model and optimizer as one thing that is saved and loaded.
class AppState final : public fsdp::Stateful {
 public:
  AppState(Net model, torch::optim::Optimizer& optimizer)
      : model_(std::move(model)), optimizer_(optimizer) {}

  absl::StatusOr<fsdp::StateDict> state_dict() override {
    DCP_ASSIGN_OR_RETURN(auto state, fsdp::get_state_dict(*model_, optimizer_));
    return fsdp::StateDict{{"model", state.first}, {"optim", state.second}};
  }

  absl::Status load_state_dict(const fsdp::StateDict& state) override {
    return fsdp::set_state_dict(*model_, optimizer_,
                                *state.find("model")->get_if<fsdp::StateDict>(),
                                *state.find("optim")->get_if<fsdp::StateDict>())
        .status();
  }

 private:
  Net model_;
  torch::optim::Optimizer& optimizer_;
};
// [/stateful]

fsdp::FullyShardOptions OnCpu() {
  return {.mesh = fsdp::init_device_mesh("cpu", {fsdp::get_world_size()})};
}

// A sharded net with its optimizer.
struct Training {
  explicit Training(double fill) {
    torch::manual_seed(1);
    const c10::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net->parameters()) parameter.fill_(fill);
    fsdp::fully_shard(net, OnCpu());
    optimizer = std::make_unique<torch::optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.1));
    app = std::make_shared<AppState>(net, *optimizer);
  }

  torch::Tensor Loss(int64_t step) {
    return fsdp::testing::TinyLoss(net, fsdp::testing::TinyBatch(step, 4));
  }
  double FirstValue() {
    return net->parameters()[0].flatten()[0].item<double>();
  }

  Net net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  std::shared_ptr<AppState> app;
};

absl::Status Save(const std::shared_ptr<AppState>& app) {
  // [save]
  fsdp::StateDict state = {
      {"app", app}, {"step", 12}, {"note", "warm-up done"}};
  return fsdp::save(state, "runs/a/step-12");  // durable when it returns
  // [/save]
}

absl::StatusOr<int64_t> Load(const std::shared_ptr<AppState>& app) {
  // [load]
  fsdp::StateDict state = {{"app", app}, {"step", 0}, {"note", ""}};
  DCP_RETURN_IF_ERROR(fsdp::load(state, "runs/a/step-12"));
  return *state["step"].get_if<int64_t>();
  // [/load]
}

// [daemon]
// "tessera://trainer-7:7420/srv/runs/a/step-12"
absl::StatusOr<int64_t> LoadFromDaemon(const std::shared_ptr<AppState>& app,
                                       const std::string& url) {
  fsdp::TorchLoadOptions options;
  // Without TLS and a token, none of it; TESSERA_TOKEN may hold the token too.
  if (std::filesystem::exists("ca.pem")) options.daemon.ca_file = "ca.pem";
  if (std::filesystem::exists("token")) options.daemon.token_file = "token";
  fsdp::StateDict state = {{"app", app}, {"step", 0}, {"note", ""}};
  DCP_RETURN_IF_ERROR(fsdp::load(state, url, options));
  return *state["step"].get_if<int64_t>();
}
// [/daemon]

// Each rank calls it; all work below one folder.
void Enter() {
  fsdp::init_process_group();
  std::filesystem::create_directories(SharedDir() + "/runs/a");
  std::filesystem::current_path(SharedDir());
}

TEST(Readme, SavesAndLoads) {
  RunRanks(2, [] {
    Enter();
    Training saved(0.25);
    ASSERT_OK(Save(saved.app));
    Training loaded(0.5);
    EXPECT_THAT(Load(loaded.app), dcp::testing::IsOkAndHolds(12));
    EXPECT_EQ(loaded.FirstValue(), 0.25);
  });
}

TEST(Readme, LoadsFromADaemon) {
  const fsdp::testing::TestDaemon daemon;
  RunRanks(
      2,
      [&] {
        Enter();
        Training saved(0.25);
        ASSERT_OK(fsdp::save(
            {{"app", saved.app}, {"step", 12}, {"note", "warm-up done"}},
            daemon.Path("step-12")));
        Training loaded(0.5);
        EXPECT_THAT(LoadFromDaemon(loaded.app, daemon.Url("step-12")),
                    dcp::testing::IsOkAndHolds(12));
        EXPECT_EQ(loaded.FirstValue(), 0.25);
      },
      daemon.ForRanks());
}

absl::Status SaveBehindTraining(Training& training, int64_t num_steps) {
  auto& [net, optimizer, app] = training;
  const auto loss_of = [&](int64_t step) { return training.Loss(step); };
  // [async_save]
  std::optional<fsdp::SaveHandle> save;
  for (int64_t step = 0; step < num_steps; ++step) {
    optimizer->zero_grad();
    loss_of(step).backward();
    optimizer->step();  // waits until the state has been copied
    if ((step + 1) % 2 != 0) continue;
    // Returns at once; reports a failure of the previous save.
    DCP_ASSIGN_OR_RETURN(
        save, fsdp::async_save({{"app", app}, {"step", step + 1}},
                               absl::StrCat("runs/a/step-", step + 1)));
  }
  return save->wait();  // durable on all ranks, or the error of any
  // [/async_save]
}

TEST(Readme, SavesInTheBackground) {
  RunRanks(2, [] {
    Enter();
    Training training(0.25);
    ASSERT_OK(SaveBehindTraining(training, 4));
    const double trained = training.FirstValue();
    EXPECT_NE(trained, 0.25);
    Training loaded(0.5);
    fsdp::StateDict state = {{"app", loaded.app}, {"step", 0}};
    EXPECT_OK(fsdp::load(state, "runs/a/step-4"));
    EXPECT_EQ(loaded.FirstValue(), trained);
  });
}

absl::Status Train(Training& training, int64_t num_steps) {
  auto& [net, optimizer, app] = training;
  const auto loss_of = [&](int64_t step) { return training.Loss(step); };
  // [resume]
  fsdp::CheckpointManager manager("runs/a", {.save_every = 2, .keep_last = 2});
  fsdp::StateDict state = {{"app", app}};
  // The newest whole step, if there is one, on whatever mesh.
  DCP_ASSIGN_OR_RETURN(const auto newest, manager.resume(state));
  for (int64_t step = newest.value_or(0); step < num_steps; ++step) {
    optimizer->zero_grad();
    loss_of(step).backward();
    DCP_RETURN_IF_ERROR(manager.before_optimizer_step());
    optimizer->step();
    DCP_ASSIGN_OR_RETURN(const bool due, manager.should_save(step + 1));
    if (due) DCP_RETURN_IF_ERROR(manager.save(step + 1, state));
    if (manager.should_exit()) break;  // SIGTERM: saved, time to leave
  }
  return manager.finish();  // all is durable
  // [/resume]
}

TEST(Readme, Resumes) {
  RunRanks(2, [] {
    Enter();
    Training whole(0.25);
    ASSERT_OK(Train(whole, 6));
    // The newest step is gone: training goes on from the step before.
    fsdp::testing::WaitForAllRanks();
    if (fsdp::get_rank() == 0) std::filesystem::remove_all("runs/a/step-6");
    fsdp::testing::WaitForAllRanks();
    Training resumed(0.5);
    ASSERT_OK(Train(resumed, 6));
    EXPECT_EQ(resumed.FirstValue(), whole.FirstValue());
  });
}

absl::Status Export() {
  // [export]
  return fsdp::export_full("runs/a/step-12", "runs/a/model.safetensors",
                           {.prefix = "app.model"});
  // [/export]
}

absl::StatusOr<Net> LoadWhole() {
  const fsdp::FullyShardOptions options = OnCpu();
  // [rank0]
  Net net{nullptr};
  {
    const fsdp::MetaDeviceGuard on_meta;  // shapes, no memory
    net = Net();
  }
  fsdp::fully_shard(net, options);
  fsdp::to_empty(net, c10::kCPU);  // memory for this rank's shards
  DCP_ASSIGN_OR_RETURN(fsdp::StateDict state, fsdp::get_model_state_dict(*net));
  DCP_RETURN_IF_ERROR(fsdp::load_from_rank0(state, "runs/a/model.safetensors"));
  return net;
  // [/rank0]
}

TEST(Readme, ExportsAndLoadsFromRank0) {
  RunRanks(2, [] {
    Enter();
    Training saved(0.25);
    ASSERT_OK(Save(saved.app));
    ASSERT_OK(Export());
    ASSERT_OK_AND_ASSIGN(Net net, LoadWhole());
    EXPECT_EQ(net->parameters()[0].flatten()[0].item<double>(), 0.25);
  });
}

}  // namespace
