// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/composer/trainer.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/dialects/fields/betas.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/optimizer_name.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

enum class TimeUnit : uint8_t { kBatches, kOther, kNone };

struct Time {
  TimeUnit unit = TimeUnit::kNone;
  int64_t count = 0;  // in batches
};

// "500ba"; a number without a unit counts epochs.
Time AsTime(const Node& node) {
  if (!node.is_scalar()) return {};
  if (AsInteger(node).has_value()) return {.unit = TimeUnit::kOther};
  for (const char* unit : {"ba", "ep", "iter", "sp", "tok", "dur", "sec"}) {
    if (!absl::EndsWithIgnoreCase(node.text, unit)) continue;
    Node number = node;
    number.text.resize(node.text.size() - absl::string_view(unit).size());
    const std::optional<int64_t> count = AsInteger(number);
    if (absl::string_view(unit) != "ba") {
      return {.unit = AsReal(number).has_value() ? TimeUnit::kOther
                                                 : TimeUnit::kNone};
    }
    if (!count.has_value() || *count < 0) return {};
    return {.unit = TimeUnit::kBatches, .count = *count};
  }
  return {};
}

// Returns a number of batches, or adds a finding: `otherwise` says how other
// units are read.
std::optional<int64_t> ReadBatches(Section& root, absl::string_view key,
                                   absl::string_view otherwise) {
  const Node* node = root.Find(key);
  if (node == nullptr) return std::nullopt;
  const Time time = AsTime(*node);
  if (time.unit == TimeUnit::kBatches) return time.count;
  if (time.unit == TimeUnit::kOther) {
    root.findings().Changed(
        node->place,
        absl::StrCat("is read as ", otherwise,
                     ": steps alone are counted; write them as 1000ba"));
  } else {
    root.findings().Problem(node->place,
                            "is not a duration such as 1000ba or 2ep");
  }
  return std::nullopt;
}

// Reads a rank's batch size, and how many batches make a step.
void ReadBatchSizes(Section& root, LoopConfig& loop) {
  root.Read("global_train_batch_size", {.least = 1}, loop.global_batch_size);
  const Node* micro = root.Find("device_train_microbatch_size");
  if (micro != nullptr && micro->is_scalar() &&
      absl::EqualsIgnoreCase(micro->text, "auto")) {
    root.findings().Changed(
        micro->place, "is read as the program's own: no other one is tried");
    micro = nullptr;
  } else {
    root.Read("device_train_microbatch_size", {.least = 1},
              loop.local_batch_size);
  }
  Setting<std::optional<int64_t>> batch;
  if (!root.Read("device_train_batch_size", {.least = 1}, batch)) return;
  if (micro == nullptr) {
    loop.local_batch_size = batch;
    return;
  }
  if (!loop.local_batch_size->has_value()) return;  // a problem reports it
  if (**batch % **loop.local_batch_size != 0) {
    root.findings().Problem(*batch.place(),
                            absl::StrCat("is ", **batch,
                                         ", which is not a multiple of "
                                         "device_train_microbatch_size, ",
                                         **loop.local_batch_size));
    return;
  }
  loop.gradient_accumulation_steps =
      Some(**batch / **loop.local_batch_size, *batch.place());
}

// DecoupledAdamW, unlike AdamW, does not multiply weight_decay by the learning
// rate.
void Couple(Section& section, LoopConfig& loop) {
  const SourceLocation place = *loop.weight_decay.place();
  if (!loop.lr->has_value() || !(**loop.lr > 0)) {
    section.findings().Problem(
        place,
        "needs an lr above 0 as well, because AdamW multiplies it by lr");
    return;
  }
  const double decay = **loop.weight_decay / **loop.lr;
  if (!(decay <= RealRange{}.most)) {
    section.findings().Problem(place, "is too large for its lr");
    return;
  }
  loop.weight_decay = Some(decay, place);
  section.findings().Changed(
      place, absl::StrCat("is read as AdamW's ", RealText(decay),
                          ", which is multiplied by lr"));
}

// The defaults of Composer's DecoupledAdamW, or else of torch's AdamW.
void SetDefaults(bool is_decoupled, LoopConfig& loop) {
  if (!is_decoupled) loop.weight_decay = std::optional(1e-2);
  loop.beta1 = std::optional(0.9);
  loop.beta2 = std::optional(is_decoupled ? 0.95 : 0.999);
  loop.eps = std::optional(1e-8);
}

void ReadOptimizer(const Node& node, LoopConfig& loop, Findings& findings) {
  Section section(node, findings);
  ReadOptimizerName("name", section);
  Setting<std::string> name;
  section.Read("name", name);
  const bool is_decoupled =
      absl::StartsWith(absl::AsciiStrToLower(*name), "decoupled");
  if (!name->empty()) SetDefaults(is_decoupled, loop);
  if (section.Read("lr", RealRange{}, loop.lr) && is_decoupled &&
      **loop.lr > 0) {
    loop.weight_decay = std::optional(1e-5 / **loop.lr);
  }
  if (section.Read("weight_decay", RealRange{}, loop.weight_decay) &&
      **loop.weight_decay > 0 && is_decoupled) {
    Couple(section, loop);
  }
  section.Read("eps", RealRange{}, loop.eps);
  ReadBetas(section, loop);
  section.FinishLenient("the program makes its optimizer");
}

// "100ba", or "0.1dur", a share of the run.
void ReadComposerWarmup(Section& section, LrSchedule& schedule) {
  const Node* warmup = section.Find("t_warmup");
  absl::string_view share;
  if (warmup != nullptr) share = warmup->text;
  double ratio = 0;
  if (absl::ConsumeSuffix(&share, "dur") && absl::SimpleAtod(share, &ratio) &&
      ratio >= 0 && ratio <= 1) {
    schedule.warmup_ratio = ratio;
    return;
  }
  const std::optional<int64_t> steps =
      ReadBatches(section, "t_warmup", "no warmup");
  schedule.warmup_steps = steps.value_or(0);
}

// The names come from LLM Foundry and from Composer's classes.
void ReadScheduler(const Node& node, LoopConfig& loop, Findings& findings) {
  Section section(node, findings);
  const Choices<LrDecay> kNames = {
      {"cosine_with_warmup", LrDecay::kCosine},
      {"CosineAnnealingWithWarmupScheduler", LrDecay::kCosine},
      {"linear_decay_with_warmup", LrDecay::kLinear},
      {"LinearWithWarmupScheduler", LrDecay::kLinear},
      {"constant_with_warmup", LrDecay::kConstant},
      {"ConstantWithWarmupScheduler", LrDecay::kConstant}};
  Setting<LrDecay> name;
  if (!section.Read("name", kNames, name)) return;
  LrSchedule schedule = {.decay = *name};
  ReadComposerWarmup(section, schedule);
  Setting<std::optional<double>> number;
  if (section.Read("alpha_f", RealRange{}, number)) {
    schedule.min_factor = **number;
  }
  section.Refuse("t_max", "1dur", "a schedule is as long as the run");
  section.Refuse("alpha_i", "1", "a warmup ends at lr");
  section.Refuse("scale_warmup", "false", "the run is not scaled");
  section.Finish();
  loop.lr_schedule = Some(schedule, *name.place());
}

void ReadAlgorithms(const Node& node, LoopConfig& loop, Findings& findings) {
  if (node.kind != Kind::kMap) {
    findings.Ignored(node.place, "has no effect: the program is its own loop");
    return;
  }
  Section algorithms(node, findings);
  if (const Node* clipping = algorithms.Find("gradient_clipping")) {
    Section section(*clipping, findings);
    section.Refuse("clipping_type", "norm", "gradients are clipped by norm");
    section.Read("clipping_threshold", RealRange{}, loop.max_norm);
    section.Finish();
  }
  algorithms.FinishLenient("the program is its own loop");
}

// With init_device: mixed, LLM Foundry builds the model on rank 0 only; other
// ranks use the meta device.
void ReadInitDevice(Section& model, TrainConfig& config) {
  const Choices<bool> kDevices = {
      {"mixed", true}, {"cpu", false}, {"meta", false}};
  Setting<bool> is_mixed;
  if (!model.Read("init_device", kDevices, is_mixed) || !*is_mixed) return;
  if (AreCopies(config.mesh)) {
    model.findings().Problem(*is_mixed.place(),
                             "is mixed, which LLM Foundry has for FSDP alone; "
                             "write cpu, or an fsdp_config");
    return;
  }
  Setting<bool>& loading = config.checkpoint.cpu_ram_efficient_loading;
  if (loading.place().has_value()) return;
  loading = is_mixed;
  model.findings().Changed(*is_mixed.place(),
                           "is read as load_monolith_rank0_only: true: rank 0 "
                           "reads the weights, and sends the others their "
                           "parts");
}

void ReadModel(const Node& node, TrainConfig& config, Findings& findings) {
  if (node.kind != Kind::kMap) return;
  Section section(node, findings);
  section.Read("master_weights_dtype", config.precision.dtype);
  ReadInitDevice(section, config);
  section.FinishLenient("the program makes its model");
}

}  // namespace

void ReadComposerSaves(Section& root, bool is_foundry,
                       CheckpointConfig& checkpoint) {
  root.Read("save_folder", checkpoint.folder);
  constexpr absl::string_view kLastOnly = "one save, after the last step";
  const Node* interval = root.Find("save_interval");
  if (interval != nullptr && absl::EqualsIgnoreCase(interval->text, "1dur")) {
    checkpoint.interval = Setting<int64_t>(0, interval->place);  // as 1dur says
  } else if (interval != nullptr) {
    const std::optional<int64_t> batches =
        ReadBatches(root, "save_interval", kLastOnly);
    if (batches.has_value()) {
      checkpoint.interval = Setting<int64_t>(*batches, interval->place);
    }
  } else if (!checkpoint.folder->empty() && is_foundry) {
    checkpoint.interval = 1000;
  } else if (!checkpoint.folder->empty()) {
    root.findings().Changed(
        *checkpoint.folder.place(),
        absl::StrCat("without save_interval is read as ", kLastOnly,
                     ", where Composer saves after each epoch; write "
                     "save_interval: 500ba"));
  }
  Setting<int64_t> keep = -1;
  root.Read("save_num_checkpoints_to_keep", {.least = -1}, keep);
  if (*keep == 0) {
    root.findings().Problem(*keep.place(), "is 0, which keeps none; -1 is all");
  } else if (*keep > 0) {
    checkpoint.keep_latest_k = keep;
  }
  Setting<bool> weights_only = false;
  if (root.Read("save_weights_only", weights_only) && *weights_only) {
    checkpoint.last_save_model_only = weights_only;
    root.findings().Changed(*weights_only.place(),
                            "is read as the last save alone: a run goes on "
                            "from the others");
  }
}

void ReadComposerLoads(Section& root, CheckpointConfig& checkpoint) {
  root.Read("load_path", checkpoint.initial_load_path);
  Setting<bool> weights_only = true;
  root.Read("load_weights_only", weights_only);
  if (!*weights_only && !checkpoint.initial_load_path->empty()) {
    root.findings().Changed(*weights_only.place(),
                            "is read as true: a run goes on, with its "
                            "optimizer, from its save_folder alone");
  }
  root.Refuse("load_ignore_keys", "", "all is loaded or nothing");
  root.Refuse("save_ignore_keys", "", "all is saved");
  Setting<bool> strict = true;
  if (root.Read("load_strict_model_weights", strict) && !*strict) {
    root.Ignore("load_strict_model_weights", "every weight must be there");
  }
}

void ReadComposerLoop(Section& root, TrainConfig& config) {
  LoopConfig& loop = config.loop;
  const Node* duration = root.Find("max_duration");
  const std::optional<int64_t> steps =
      ReadBatches(root, "max_duration", "the program's own number of steps");
  if (steps.has_value()) loop.steps = Some(*steps, duration->place);
  ReadBatchSizes(root, loop);
  root.Read("max_seq_len", {.least = 1}, loop.seq_len);
  root.Read("seed", IntegerRange{}, loop.seed);
  if (const Node* node = root.Find({"optimizer", "optimizers"})) {
    ReadOptimizer(*node, loop, root.findings());
  }
  if (const Node* node = root.Find({"scheduler", "schedulers"})) {
    ReadScheduler(*node, loop, root.findings());
  }
  if (const Node* node = root.Find("algorithms")) {
    ReadAlgorithms(*node, loop, root.findings());
  }
  if (const Node* node = root.Find("model")) {
    ReadModel(*node, config, root.findings());
  }
}

}  // namespace fsdp::config
