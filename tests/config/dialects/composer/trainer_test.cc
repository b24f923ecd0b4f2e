// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/composer/trainer.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/composer/composer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Reading ReadTrainer(absl::string_view text) {
  return ReadWith(&ReadComposer, "run.yaml", Syntax::kYaml, text);
}

TEST(Composer, RefusesOtherOptimizers) {
  EXPECT_THAT(
      ReadTrainer(
          "fsdp_config: {}\noptimizer: {name: decoupled_lionw, lr: 1e-4}\n")
          .findings,
      ElementsAre(HasSubstr("optimizer.name is decoupled_lionw")));
  EXPECT_THAT(
      ReadTrainer(
          "fsdp_config: {}\noptimizer: {name: decoupled_adamw, lr: 1e-4}\n")
          .findings,
      IsEmpty());
}

TEST(Composer, ReadsSchedulesBetasAndEps) {
  const Reading reading = ReadTrainer(R"(
optimizer: {name: decoupled_adamw, lr: 6e-4, betas: [0.9, 0.95], eps: 1e-8}
scheduler: {name: cosine_with_warmup, t_warmup: 100ba, alpha_f: 0.1}
fsdp_config: {}
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.loop.beta2, 0.95);
  EXPECT_EQ(*reading.config.loop.eps, 1e-8);
  // DecoupledAdamW's default, 1e-5, converted to AdamW's.
  EXPECT_EQ(*reading.config.loop.weight_decay, 1e-5 / 6e-4);
  EXPECT_EQ(
      **reading.config.loop.lr_schedule,
      (LrSchedule{
          .decay = LrDecay::kCosine, .warmup_steps = 100, .min_factor = 0.1}));
  EXPECT_THAT(
      ReadTrainer("fsdp_config: {}\nscheduler: {name: inv_sqrt_with_warmup}\n"
                  "optimizer: {betas: [0.9]}\n")
          .findings,
      UnorderedElementsAre(
          HasSubstr("scheduler.name is 'inv_sqrt_with_warmup'"),
          HasSubstr("optimizer.betas is not a list of two")));
}

TEST(Composer, UsesOptimizerDefaults) {
  const auto loop_of = [](const std::string& name) {
    return ReadTrainer("fsdp_config: {}\noptimizer: {name: " + name +
                       ", lr: 0.5}\n")
        .config.loop;
  };
  const LoopConfig decoupled = loop_of("DecoupledAdamW");
  EXPECT_EQ(*decoupled.beta1, 0.9);
  EXPECT_EQ(*decoupled.beta2, 0.95);
  EXPECT_EQ(*decoupled.eps, 1e-8);
  EXPECT_EQ(*decoupled.weight_decay, 2e-5);
  const LoopConfig torchs = loop_of("adamw");
  EXPECT_EQ(*torchs.beta2, 0.999);
  EXPECT_EQ(*torchs.weight_decay, 1e-2);
}

TEST(Composer, ReportsDurationsNotInSteps) {
  const Reading reading = ReadTrainer(
      "precision: fp32\nmax_duration: 2ep\nsave_folder: a\n"
      "save_interval: 1\nfsdp2: {verbose: true}");
  EXPECT_EQ(*reading.config.loop.steps, std::nullopt);
  EXPECT_EQ(*reading.config.checkpoint.interval, 0);
  EXPECT_THAT(reading.findings,
              UnorderedElementsAre(
                  AllOf(StartsWith("changed run.yaml:2: max_duration "),
                        HasSubstr("the program's own number of steps")),
                  AllOf(StartsWith("changed run.yaml:4: save_interval "),
                        HasSubstr("after the last step"))));
  for (const char* duration : {"ba", "-5ba", "1.5ba", "soon", "10 apples"}) {
    EXPECT_THAT(
        ReadTrainer(absl::StrCat("precision: fp32\nfsdp2: {verbose: true}\n"
                                 "max_duration: ",
                                 duration))
            .findings,
        ElementsAre(StartsWith("problem run.yaml:3: ")))
        << duration;
  }
}

TEST(Composer, ReportsASaveFolderWithoutAnInterval) {
  EXPECT_THAT(
      ReadTrainer("precision: fp32\nfsdp2: {verbose: true}\nsave_folder: a")
          .findings,
      ElementsAre(HasSubstr("write save_interval: 500ba")));
}

TEST(Composer, DecoupledWeightDecayIsDividedByTheLearningRate) {
  const Reading reading = ReadTrainer(
      "precision: fp32\nfsdp2: {verbose: true}\n"
      "optimizer: {name: decoupled_adamw, lr: 0.5, weight_decay: 0.25}");
  EXPECT_EQ(*reading.config.loop.weight_decay, 0.5);
  EXPECT_THAT(reading.findings,
              ElementsAre(HasSubstr("is read as AdamW's 0.5")));
  EXPECT_THAT(
      ReadTrainer("precision: fp32\nfsdp2: {verbose: true}\n"
                  "optimizer: {name: decoupled_adamw, weight_decay: 0.25}")
          .findings,
      ElementsAre(StartsWith("problem run.yaml:3: ")));
}

}  // namespace
}  // namespace fsdp::config
