// SPDX-License-Identifier: Apache-2.0
// Arguments that a pipeline refuses, and how one stage's error or end reaches
// the others.

#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr int64_t kFailingLayers = 4;

PipelineStage MyStage() {
  return PipelineStage(
      MakeStageModel(get_rank(), get_world_size(), kFailingLayers),
      init_device_mesh("cpu", {get_world_size()}, {"pp"}));
}

PipelineBatch BatchWithRows(int64_t rows) {
  return {.args = {Tokens(0, rows)}, .target = Tokens(1, rows)};
}

void ExpectErrorOfStep(const std::function<Tensor()>& step,
                       const std::vector<std::string>& says) {
  const std::string error = ThrownMessage([&] { step(); });
  for (const std::string& text : says) EXPECT_THAT(error, HasSubstr(text));
}

TEST(PipelineErrors, ChecksStagesAndSchedules) {
  RunRanks(2, [] {
    StartRank();
    const PipelineStage stage = MyStage();
    ExpectError<c10::ValueError>([&] { Schedule1F1B(stage, 1, TokenLoss); },
                                 {"1 microbatches and 2 stages"});
    ExpectError<c10::ValueError>([&] { ScheduleGPipe(stage, 0); },
                                 {"at least one microbatch"});
    ExpectError<c10::ValueError>(
        [&] {
          PipelineStage(stage.module(), nullptr,
                        init_device_mesh("cpu", {1, 2}, {"dp", "pp"}));
        },
        {"one axis, not 2", "mesh[\"pp\"]"});
    EXPECT_EQ(stage.stage_index(), get_rank());
    EXPECT_EQ(stage.is_first(), get_rank() == 0);
    EXPECT_EQ(stage.is_last(), get_rank() == 1);
  });
}

// An error on one rank is an error on both, before they exchange anything.
void ExpectErrorOnBoth(
    const std::function<void(const DeviceMesh& mesh)>& construct,
    const std::string& says) {
  RunRanks(2, [=] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const std::string error = ThrownMessage([&] { construct(mesh); });
    EXPECT_THAT(error, HasSubstr(says));
    // The pipeline can be made again.
    Schedule1F1B schedule(MyStage(), 2, TokenLoss);
    schedule.step(BatchWithRows(4));
  });
}

PipelineStage StageAt(const DeviceMesh& mesh, int64_t stage, int64_t num) {
  return PipelineStage(MakeStageModel(stage, num, kFailingLayers), mesh,
                       StagePlace{stage, num});
}

TEST(PipelineErrors, AreOnAllRanksBeforeAnyCollective) {
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        std::shared_ptr<torch::nn::Module> empty =
            std::make_shared<torch::nn::ReLUImpl>();
        const auto forward = [](const StageTensors& in) { return in; };
        const PipelineStage stage =
            get_rank() == 0 ? MyStage() : PipelineStage(empty, forward, mesh);
        Schedule1F1B(stage, 2, TokenLoss);
      },
      "stage 1 of 2 has no parameters");
  ExpectErrorOnBoth(
      [](const DeviceMesh&) {
        Schedule1F1B(MyStage(), get_rank() == 0 ? 1 : 2, TokenLoss);
      },
      "there are 1 microbatches and 2 stages");
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        // Rank 1 has them as for a schedule that is not a V.
        ScheduleZBVZeroBubble(
            {StageAt(mesh, get_rank(), 4), StageAt(mesh, 3, 4)}, 4, TokenLoss);
      },
      "has the stages 1, 2, but was given 1, 3");
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        ScheduleInterleaved1F1B({StageAt(mesh, get_rank(), 3)}, 4, TokenLoss);
      },
      "3 stages cannot be divided among 2 ranks with 1 on each");
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        ScheduleInterleaved1F1B(
            {StageAt(mesh, get_rank(), 4), StageAt(mesh, get_rank() + 2, 4)}, 5,
            TokenLoss);
      },
      "5 microbatches are not a multiple of 2 rounds");
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        ScheduleFromOrder({StageAt(mesh, get_rank(), 2)},
                          ParseOrderCsv("0F0,0B0\n"), TokenLoss);
      },
      "the order is for 1 ranks and 1 stages, but the pipeline has 2 ranks");
  ExpectErrorOnBoth(
      [](const DeviceMesh& mesh) {
        ScheduleFromOrder({StageAt(mesh, get_rank(), 2)},
                          ParseOrderCsv("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"),
                          TokenLoss);
      },
      "wait for each other for ever: rank 0 at 0B0, rank 1 at 1F1");
}

// One stage's error reaches the other, which names the failed stage.
void ExpectErrors(const PipelineBatch& batch, bool grad_mode,
                  const std::string& of_first, const std::string& of_last) {
  RunRanks(2, [=] {
    StartRank();
    ScheduleGPipe schedule(MyStage(), 2, TokenLoss);
    at::AutoGradMode mode(grad_mode);
    ExpectErrorOfStep([&] { return schedule.step(batch); },
                      {get_rank() == 0 ? of_first : of_last});
    WaitForAllRanks();
  });
}

TEST(PipelineErrors, RefusesBatchesThatCannotBeDivided) {
  const std::string left = "after an error of stage 0 in the division of a";
  ExpectErrors({.args = {Tokens(0, 3)}, .target = Tokens(1, 4)}, true,
               "inputs along dim 0 into 2 equal microbatches", left);
  ExpectErrors({.target = Tokens(1, 4)}, true, "needs the inputs of the model",
               left);
  ExpectErrors({.args = {Tokens(0, 4)}, .target = Tokens(1, 5)}, true,
               "after an error of stage 1 in the division of a batch",
               "targets along dim 0 into 2 equal microbatches");
  ExpectErrors({.args = {Tokens(0, 4)}}, true,
               "after an error of stage 1 in the division of a batch",
               "needs what the loss function compares");
  ExpectErrors(BatchWithRows(4), false, "grad mode is off; call eval()",
               "grad mode is off; call eval()");
}

TEST(PipelineErrors, RefusesStagesWithDifferentSchedules) {
  RunRanks(2, [] {
    StartRank();
    const PipelineStage stage = MyStage();
    if (get_rank() == 0) {
      ScheduleGPipe schedule(stage, 4, TokenLoss);
      ExpectErrorOfStep([&] { return schedule.step(BatchWithRows(4)); },
                        {"after an error of stage 1"});
    } else {
      Schedule1F1B schedule(stage, 2, TokenLoss);
      ExpectErrorOfStep(
          [&] { return schedule.step(BatchWithRows(4)); },
          {"stage 1 of 2 runs Schedule1F1B with 2 microbatches, but stage 0 "
           "runs ScheduleGPipe with 4 microbatches"});
    }
    WaitForAllRanks();
  });
}

TEST(PipelineErrors, ReportsAStageThatThrows) {
  for (const int64_t fails : {0, 1, 2}) {
    RunRanks(3, [fails] {
      StartRank();
      StagedModel model = MakeStageModel(get_rank(), 3, kFailingLayers);
      auto calls = std::make_shared<int>(0);
      const auto forward = [=](const StageTensors& in) mutable {
        TORCH_CHECK_INDEX(get_rank() != fails || ++*calls < 4,
                          "the user's own error");
        return StageTensors{model(in[0])};
      };
      Schedule1F1B schedule(PipelineStage(model.ptr(), forward,
                                          init_device_mesh("cpu", {3}, {"pp"})),
                            3, TokenLoss);
      schedule.step(BatchWithRows(3));
      if (get_rank() == fails) {
        // The second step's first forward.
        ExpectError<c10::IndexError>([&] { schedule.step(BatchWithRows(3)); },
                                     {"the user's own error"});
      } else {
        const std::string me = std::to_string(get_rank());
        ExpectErrorOfStep([&] { return schedule.step(BatchWithRows(3)); },
                          {"rank " + me + " of 3", "stage " + me + " of 3: ",
                           "after an error of stage " + std::to_string(fails) +
                               " in the forward of microbatch 0"});
      }
      // A second attempt fails at once.
      EXPECT_FALSE(
          ThrownMessage([&] { schedule.step(BatchWithRows(3)); }).empty());
      WaitForAllRanks();
    });
  }
}

TEST(PipelineErrors, ReportsAKilledStage) {
  RunRanks(3,
           [] {
             StartRank();
             Schedule1F1B schedule(MyStage(), 3, TokenLoss);
             schedule.step(BatchWithRows(3));
             if (get_rank() == 1) raise(SIGKILL);
             const std::string me = std::to_string(get_rank());
             const std::string error = ThrownMessage([&] {
               for (;;) schedule.step(BatchWithRows(3));
             });
             EXPECT_THAT(error, AllOf(HasSubstr("stage " + me + " of 3: "),
                                      HasSubstr("stage 1, which is rank 1")));
           },
           {.may_die = {1}});
}

TEST(PipelineErrors, ReportsAMissingStage) {
  RunRanks(2, [] {
    StartRank({.timeout = std::chrono::seconds(20)});
    Schedule1F1B schedule(MyStage(), 2, TokenLoss);
    schedule.step(BatchWithRows(4));
    world_group()->getBackend(c10::kCPU)->setTimeout(std::chrono::seconds(2));
    if (get_rank() == 1) {
      ExpectErrorOfStep([&] { return schedule.step(BatchWithRows(4)); },
                        {"stage 1 of 2: receiving the header of a step from "
                         "stage 0, which is rank 0",
                         "Timed out"});
    }
    WaitForAllRanks();
  });
}

// On the second call, returns forbidden outputs: other sizes or numbers.
struct Changing : torch::nn::Module {
  explicit Changing(bool in_number) : in_number_(in_number) {}
  std::vector<Tensor> forward(const Tensor& x) {
    if (++calls_ == 1) return {x};
    if (in_number_) return {x, x};
    return {x.narrow(0, 0, 1)};
  }

 private:
  bool in_number_;
  int calls_ = 0;
};

TEST(PipelineErrors, RefusesMicrobatchesThatDiffer) {
  for (const bool in_number : {false, true}) {
    RunRanks(2, [in_number] {
      StartRank();
      const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
      ScheduleGPipe schedule(
          PipelineStage(std::make_shared<Changing>(in_number), mesh), 2);
      ExpectErrorOfStep(
          [&] {
            return schedule.step({.args = {torch::ones({4, 3})}});
          },
          {get_rank() == 1 ? "after an error of stage 0 in the forward of "
                             "microbatch 1"
           : in_number     ? "returned 2 tensors for microbatch 1, but 1"
                           : "returned Float[1, 3] for microbatch 1, but "
                             "Float[2, 3] for the first one"});
      WaitForAllRanks();
    });
  }
}

}  // namespace
}  // namespace fsdp::testing
