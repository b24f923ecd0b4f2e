// SPDX-License-Identifier: Apache-2.0
// Reads transformers' schedules: a name, a warmup, and a minimum.
//
// Tested by tests/config/dialects/transformers/read_test.cc.
#include "config/dialects/fields/lr_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "config/dialects/fields/config_writer.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// warmup_steps is a step count or, below 1, a share of all steps.
void ReadWarmup(Section& section, LrSchedule& schedule) {
  Setting<std::optional<double>> warmup;
  if (section.Read("warmup_steps", RealRange{}, warmup)) {
    const double steps = **warmup;
    if (steps < 1) {
      schedule.warmup_ratio = steps;
    } else {
      constexpr double kMostSteps = 1e15;  // fits in an int64_t
      schedule.warmup_steps = static_cast<int64_t>(std::min(steps, kMostSteps));
    }
  }
  if (section.Read("warmup_ratio", RealRange{.most = 1}, warmup) &&
      schedule.warmup_steps == 0 && schedule.warmup_ratio == 0) {
    schedule.warmup_ratio = **warmup;
  }
}

// Reads the learning rate at which a cosine ends.
void ReadMinimum(Section& section, const LoopConfig& loop,
                 LrSchedule& schedule) {
  Setting<std::optional<double>> least;
  if (section.Read("cosine_min_lr_ratio", RealRange{.most = 1}, least)) {
    schedule.min_factor = **least;
  }
  const Node* arguments = section.Find("lr_scheduler_kwargs");
  if (arguments == nullptr || arguments->kind != Node::Kind::kMap) return;
  Section kwargs(*arguments, section.findings());
  if (kwargs.Read("min_lr_rate", RealRange{.most = 1}, least)) {
    schedule.min_factor = **least;
  }
  if (kwargs.Read("min_lr", RealRange{}, least) && loop.lr->has_value() &&
      **loop.lr > 0) {
    schedule.min_factor = **least / **loop.lr;
  }
  kwargs.Finish();
}

}  // namespace

void ReadLrScheduler(absl::string_view name_key, Section& section,
                     LoopConfig& loop) {
  LrSchedule schedule = loop.lr_schedule->value_or(LrSchedule());
  // Known even if the curve is not.
  for (const absl::string_view key :
       {"warmup_steps", "warmup_ratio", "cosine_min_lr_ratio",
        "lr_scheduler_kwargs"}) {
    section.Find(key);
  }
  const Choices<LrDecay> kNames = {
      {"linear", LrDecay::kLinear},
      {"cosine", LrDecay::kCosine},
      {"cosine_with_min_lr", LrDecay::kCosine},
      {"constant", LrDecay::kConstant},
      {"constant_with_warmup", LrDecay::kConstant}};
  Setting<LrDecay> name = schedule.decay;
  if (!section.Read(name_key, kNames, name) &&
      section.Find(name_key) != nullptr) {
    return;  // a problem gives the reason
  }
  schedule.decay = *name;
  ReadWarmup(section, schedule);
  ReadMinimum(section, loop, schedule);
  const Node* named = section.Find(name_key);
  // transformers' "constant" has no warmup.
  if (named != nullptr && named->text == "constant") {
    schedule.warmup_steps = 0;
    schedule.warmup_ratio = 0;
  }
  if (name.place().has_value()) {
    loop.lr_schedule = Some(schedule, *name.place());
  } else {
    loop.lr_schedule = std::optional(schedule);
  }
}

}  // namespace fsdp::config
