// SPDX-License-Identifier: Apache-2.0
// Checkpoints of parameters that parallelize_module has cut and fully_shard has
// not taken.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/tensor/mlp_stack.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

// The parameters and Adam's momentum; a step has changed each.
struct Trained {
  explicit Trained(int64_t seed, const DeviceMesh& tp) {
    torch::manual_seed(seed);
    model = Stack(17);
    parallelize_module(model, tp, StackPlan());
    step.emplace(model->parameters(), 1e-2);
    model->forward(MakeBatch(seed, 17, tp).whole).sum().backward();
    step->step();
  }
  StateDict States(const StateDictOptions& options = {}) {
    auto states = get_state_dict(*model, *step, options);
    ThrowIfError(states.status());
    return {{"model", std::move(states->first)},
            {"optim", std::move(states->second)}};
  }
  void Set(StateDict& states, const StateDictOptions& options = {}) {
    ThrowIfError(set_state_dict(*model, *step,
                                *states["model"].get_if<StateDict>(),
                                *states["optim"].get_if<StateDict>(), options)
                     .status());
  }
  void ExpectEqual(Trained& other, const std::string& where) {
    const auto mine = model->parameters();
    const auto theirs = other.model->parameters();
    const auto moment = [](Trained& trained, const at::Tensor& parameter) {
      const void* key = parameter.unsafeGetTensorImpl();
      return static_cast<torch::optim::AdamParamState&>(
                 *trained.step->state().at(const_cast<void*>(key)))
          .exp_avg();
    };
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_TRUE(torch::equal(mine[i], theirs[i])) << i << where;
      EXPECT_TRUE(
          torch::equal(moment(*this, mine[i]), moment(other, theirs[i])))
          << i << where;
    }
  }
  Stack model{nullptr};
  std::optional<torch::optim::Adam> step;
};

TEST(ParallelCheckpoint, WorksWithoutFullyShard) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    Trained trained(1, tp);
    {
      const std::string path = SharedDir() + "/shards";
      ThrowIfError(save(trained.States(), path));
      Trained other(2, tp);
      StateDict states = other.States();
      ThrowIfError(load(states, path));
      other.Set(states);
      other.ExpectEqual(trained, " from a folder");
    }
    for (const bool broadcast : {false, true}) {
      const StateDictOptions full{.full_state_dict = true,
                                  .cpu_offload = broadcast,
                                  .broadcast_from_rank0 = broadcast};
      StateDict states = trained.States(full);
      const auto& model = *states["model"].get_if<StateDict>();
      EXPECT_EQ(model.empty(), broadcast && get_rank() != 0);
      Trained other(2, tp);
      other.Set(states, full);
      other.ExpectEqual(trained, " from whole tensors");
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
