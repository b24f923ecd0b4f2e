// SPDX-License-Identifier: Apache-2.0
// Reads prime-rl's TOML, as of August 2026: a supervised training run, or the
// trainer in a reinforcement learning run, which keeps shared settings outside
// [trainer]. prime-rl reads the word None as null.
//
// Tested by tests/config/dialects/prime_rl/read_test.cc.
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/key_table.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/dialects/prime_rl/prime_rl.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// How many ranks divide experts; auto depends on the model.
void ReadPrimeExperts(Section& section, const KeyRow& row,
                      TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  if (node->text != "auto") {
    ReadDegree(section, row.key, 1, config.mesh.expert_parallel_degree);
    return;
  }
  section.findings().Changed(
      node->place,
      "is read as 1, for a model without experts; write a number for another");
}

void RefusePrimeFloat8(Section& section, const KeyRow& row, TrainConfig&) {
  section.Refuse(row.key, "", WithoutFloat8("leave it out"));
}

void ReadPrimeDecay(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<LrDecay> decay;
  const Choices<LrDecay> kTypes = {{"constant", LrDecay::kConstant},
                                   {"linear", LrDecay::kLinear},
                                   {"cosine", LrDecay::kCosine}};
  if (!section.Read(row.key, kTypes, decay)) return;
  LrSchedule schedule = {.decay = *decay};
  if (*decay != LrDecay::kConstant) schedule.warmup_steps = 10;
  config.loop.lr_schedule = Some(schedule, *decay.place());
}

constexpr absl::string_view kOptimizerStays =
    "the optimizer's state is with the parameters; fsdp_cpu_offload moves both";
constexpr KeyRow kPrimeModel[] = {
    {"dp_replicate", IntoMesh<&MeshConfig::data_parallel_replicate_degree>},
    {"cp", IntoMesh<&MeshConfig::context_parallel_degree>},
    {"cp_style", Pass},
    {"ep", ReadPrimeExperts},
    {"ep_comm_backend", Pass},
    {"fsdp_cpu_offload", kIntoSharding<&ShardingConfig::cpu_offload>},
    {"optim_cpu_offload", IgnoreOn, kOptimizerStays},
    {"full_offload", IgnoreOn, kOptimizerStays},
    {"reshard_after_forward", IntoReshard},
    {"optimization_dtype", kIntoPrecision<&PrecisionConfig::dtype>},
    {"reduce_dtype", kIntoPrecision<&PrecisionConfig::reduce_dtype>},
    {"quantization", RefusePrimeFloat8},
    {"fp8", RefusePrimeFloat8},
    {"seq_len", kIntoLoop<&LoopConfig::seq_len, 1>},
    {"ac", Pass},
    {"ac_offloading", Pass},
    {"lora", Ignore, kProgramMakesModel},
    {"compile", Pass},
};
constexpr KeyRow kPrimeOptimizer[] = {
    {"type", IntoOptimizer},
    {"lr", kIntoLoop<&LoopConfig::lr>},
    {"weight_decay", kIntoLoop<&LoopConfig::weight_decay>},
    {"betas1", kIntoLoop<&LoopConfig::beta1>},
    {"betas2", kIntoLoop<&LoopConfig::beta2>},
    {"max_norm", kIntoLoop<&LoopConfig::max_norm>},
};
constexpr KeyRow kPrimeScheduler[] = {
    {"type", ReadPrimeDecay},
    {"warmup_steps", IntoSchedule<&LrSchedule::warmup_steps>},
    {"min_lr", IntoMinimumRate},
    {"decay_steps", Pass},
};
constexpr KeyRow kPrimeCheckpoint[] = {
    {"output_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"interval", kIntoCheckpoint<&CheckpointConfig::interval, 1>},
    {"keep_last", kIntoCheckpoint<&CheckpointConfig::keep_latest_k, 1>},
    {"keep_interval", Pass},
    {"skip_optimizer", IgnoreOn, "a run resumes with its optimizer"},
};
constexpr KeyRow kPrimeData[] = {
    {"batch_size", kIntoLoop<&LoopConfig::global_batch_size, 1>},
    {"micro_batch_size", kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"seq_len", kIntoLoop<&LoopConfig::seq_len, 1>},
};
constexpr KeyRow kPrimeRoot[] = {
    {"max_steps", kIntoLoop<&LoopConfig::steps, 1>},
    {"seq_len", kIntoLoop<&LoopConfig::seq_len, 1>},
    {"deployment", Pass},
    {"output_dir", Pass},
};
constexpr absl::string_view kPrimeRunReason =
    "they are for prime-rl's model, data, rollouts and logs";
constexpr absl::string_view kPrimeOptimizerReason =
    "the program makes its optimizer";
constexpr KeyMap kPrimeSupervised[] = {
    {"", kPrimeRoot, kPrimeRunReason},
    {"model", kPrimeModel, kPrimeRunReason},
    {"data", kPrimeData, kPrimeRunReason},
    {"optim", kPrimeOptimizer, kPrimeOptimizerReason},
    {"scheduler", kPrimeScheduler},
    {"ckpt", kPrimeCheckpoint, kPrimeRunReason},
};
constexpr KeyMap kPrimeReinforced[] = {
    {"", kPrimeRoot, kPrimeRunReason},
    {"ckpt", kPrimeCheckpoint, kPrimeRunReason},
    {"trainer", kPrimeRoot, kPrimeRunReason},
    {"trainer.model", kPrimeModel, kPrimeRunReason},
    {"trainer.optim", kPrimeOptimizer, kPrimeOptimizerReason},
    {"trainer.scheduler", kPrimeScheduler},
    {"trainer.ckpt", kPrimeCheckpoint, kPrimeRunReason},
};

void SetPrimeDefaults(bool is_reinforced, TrainConfig& config) {
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.precision.param_dtype = std::optional(dcp::DType::kBFloat16);
  config.precision.reduce_dtype = std::optional(dcp::DType::kFloat32);
  config.loop = TorchAdamW();
  config.loop.lr = std::optional(1e-6);
  config.loop.max_norm = std::optional(1.0);
  config.loop.seq_len = std::optional<int64_t>(is_reinforced ? 2048 : 128);
  if (is_reinforced) return;
  config.loop.global_batch_size = std::optional<int64_t>(128);
  config.loop.local_batch_size = std::optional<int64_t>(1);
}

// Both keys are on unless they are null, and offloading needs checkpointing.
void ReadPrimeActivations(const Node& model, ShardingConfig& sharding,
                          Findings& findings) {
  const Node* checkpoint = model.Find("ac");
  const Node* offload = model.Find("ac_offloading");
  const auto is_off = [](const Node* node) {
    return node != nullptr &&
           (node->kind == Node::Kind::kNull || AsBool(*node) == false);
  };
  sharding.activation_cpu_offload =
      offload == nullptr ? Setting<bool>(true)
                         : Setting<bool>(!is_off(offload), offload->place);
  Setting<int64_t>& every = sharding.activation_checkpointing;
  every = int64_t{1};
  if (checkpoint == nullptr) return;
  if (is_off(checkpoint)) {
    every = Setting<int64_t>(*sharding.activation_cpu_offload ? 1 : 0,
                             checkpoint->place);
    return;
  }
  Section section(*checkpoint, findings);
  section.Read("freq", {.least = 1}, every);
  const Node* mode = section.Find("mode");
  if (mode == nullptr || mode->text != "selective") return;
  findings.Changed(mode->place,
                   "is read as full: the same numbers, with more arithmetic "
                   "and less memory");
}

// prime-rl does not combine these with a gradient bound.
void ReadPrimeNorm(const Node& model, const Node* optimizer, LoopConfig& loop) {
  const Node* norm =
      optimizer == nullptr ? nullptr : optimizer->Find("max_norm");
  const Node* offload = model.Find("full_offload");
  const Node* experts = model.Find("ep_comm_backend");
  const bool is_offloaded = offload != nullptr &&
                            offload->kind != Node::Kind::kNull &&
                            AsBool(*offload) != false;
  if ((norm != nullptr && norm->kind == Node::Kind::kNull) || is_offloaded ||
      (experts != nullptr && experts->text == "deepep")) {
    loop.max_norm = std::optional(0.0);
  }
}

// The linear schedule falls only in the last steps, and ends in torch's last
// step but one.
void SettlePrimeSchedule(const Node* scheduler, LoopConfig& loop,
                         Findings& findings) {
  LrSchedule schedule = loop.lr_schedule->value_or(LrSchedule());
  if (scheduler == nullptr || schedule.decay == LrDecay::kConstant) return;
  const SourceLocation place = scheduler->place;
  // A warmup begins where the curve ends.
  schedule.initial_factor = schedule.min_factor;
  Setting<int64_t> decay = 10;
  if (schedule.decay == LrDecay::kLinear) {
    Section(*scheduler, findings).Read("decay_steps", IntegerRange{}, decay);
  }
  if (*decay == 0) {
    schedule.decay = LrDecay::kConstant;
    schedule.min_factor = 0;
  } else if (!loop.steps->has_value()) {
    findings.Problem(place, "needs max_steps, which the file lacks");
    return;
  } else if (const int64_t steps = **loop.steps;
             schedule.decay == LrDecay::kLinear) {
    if (schedule.warmup_steps > steps ||
        *decay > steps - schedule.warmup_steps) {
      findings.Problem(place,
                       absl::StrCat("has more steps of warmup and decay than "
                                    "max_steps, ",
                                    steps));
      return;
    }
    if (steps > 1) {
      schedule.total_steps = steps - 1;
      schedule.decay_ratio =
          static_cast<double>(*decay - 1) / static_cast<double>(steps - 1);
    }
  }
  loop.lr_schedule = Some(schedule, place);
}

// The trainer's ranks, if the file names them.
void ReadPrimeDeployment(const Node& root, MeshConfig& mesh,
                         Findings& findings) {
  const Node* node = root.Find("deployment");
  if (node == nullptr) return;
  Section section(*node, findings);
  constexpr IntegerRange kRanks{.least = 1, .most = 1 << 20};
  Setting<int64_t> per_machine = 8;
  Setting<int64_t> machines = 2;
  Setting<int64_t> group;
  section.Read("gpus_per_node", kRanks, per_machine);
  const Node* type = section.Find("type");
  if (type == nullptr || type->text != "multi_node") {
    section.Read("num_train_gpus", kRanks, mesh.num_processes);
    return;
  }
  section.Read("num_train_nodes", kRanks, machines);
  mesh.num_processes = Setting<int64_t>(*machines * *per_machine, node->place);
  if (!section.Read("nodes_per_fsdp_group", kRanks, group)) return;
  if (*machines % *group != 0) {
    findings.Problem(
        *group.place(),
        absl::StrCat("is ", *group, ", which does not divide num_train_nodes, ",
                     *machines));
    return;
  }
  mesh.data_parallel_replicate_degree =
      Setting<int64_t>(*machines / *group, *group.place());
}

}  // namespace

void ReadPrimeRl(const Node& root_node, TrainConfig& config,
                 Findings& findings) {
  const Node root = WithNullWords(root_node);
  const bool is_reinforced =
      root.Find("orchestrator") != nullptr || root.Find("trainer") != nullptr;
  const Node* trainer = is_reinforced ? root.Find("trainer") : &root;
  const auto part = [trainer](const char* key) {
    return trainer == nullptr ? nullptr : trainer->Find(key);
  };
  SetPrimeDefaults(is_reinforced, config);
  if (is_reinforced) {
    ReadKeyMaps(root, kPrimeReinforced, config, findings);
  } else {
    ReadKeyMaps(root, kPrimeSupervised, config, findings);
  }
  static const Node& empty = *new Node();
  const Node* model = part("model");
  if (model == nullptr) model = &empty;
  ReadPrimeActivations(*model, config.sharding, findings);
  ReadPrimeNorm(*model, part("optim"), config.loop);
  SettlePrimeSchedule(part("scheduler"), config.loop, findings);
  ReadPrimeDeployment(root, config.mesh, findings);
  // Steps are in a folder of the run's directory, and there are none without
  // ckpt.
  if (config.checkpoint.folder->empty() &&
      (root.Find("ckpt") != nullptr || part("ckpt") != nullptr)) {
    const Node* folder = root.Find("output_dir");
    config.checkpoint.folder =
        folder == nullptr
            ? Setting<std::string>(std::string("outputs/checkpoints"))
            : Setting<std::string>(absl::StrCat(folder->text, "/checkpoints"),
                                   folder->place);
  }
  if (*config.sharding.cpu_offload) {
    for (const char* other : {"optim_cpu_offload", "full_offload"}) {
      const Node* node = model->Find(other);
      if (node == nullptr || AsBool(*node) == false) continue;
      findings.Problem(node->place,
                       "is given together with fsdp_cpu_offload, which "
                       "prime-rl refuses");
    }
  }
  DropRedundantCasts(config.precision);
}

}  // namespace fsdp::config
