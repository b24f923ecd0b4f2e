// SPDX-License-Identifier: Apache-2.0
// Writes a config as transformers' TrainingArguments, in JSON.
//
// Tested by tests/config/round_trip_test.cc.
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/written_degrees.h"
#include "config/dialects/fields/written_fsdp_options.h"
#include "config/dialects/transformers/transformers.h"
#include "nlohmann/json.hpp"

namespace fsdp::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kTransformersName = "transformers";

Json Options(const TrainConfig& config, Findings& findings) {
  const ShardingConfig& sharding = config.sharding;
  Json options = Json::object();
  options["version"] = 2;
  options["reshard_after_forward"] = WrittenReshard(config, findings);
  options["cpu_offload"] = *sharding.cpu_offload;
  options["auto_wrap_policy"] =
      std::string(WrittenWrapPolicy(config, findings));
  if (!sharding.transformer_layer_cls_to_wrap->empty()) {
    options["transformer_layer_cls_to_wrap"] =
        *sharding.transformer_layer_cls_to_wrap;
  }
  const bool is_by_size =
      *sharding.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap;
  if (is_by_size ||
      *sharding.min_num_params != *ShardingConfig().min_num_params) {
    options["min_num_params"] = *sharding.min_num_params;
  }
  if (!sharding.ignored_modules->empty()) {
    options["ignored_modules"] = *sharding.ignored_modules;
  }
  options["state_dict_type"] = std::string(WrittenStateDictType(config));
  options["cpu_ram_efficient_loading"] =
      *config.checkpoint.cpu_ram_efficient_loading;
  options["activation_checkpointing"] =
      WrittenActivationCheckpointing(config, findings);
  SayNotWritten(kTransformersName, sharding.activation_cpu_offload, false,
                "sharding.activation_cpu_offload", kHasNoOption, findings);
  return options;
}

void AddDegrees(const MeshConfig& mesh, Findings& findings, Json& json) {
  SayNotWritten(kTransformersName, mesh.num_processes, int64_t{0},
                "mesh.num_processes", kHasNoOption, findings);
  const WrittenDegrees degrees =
      WrittenSizes(kTransformersName, mesh, findings);
  if (degrees.is_plain()) return;
  Json sizes = Json::object();
  sizes["dp_replicate_size"] = degrees.dp_replicate_size;
  if (degrees.dp_shard_size.has_value()) {
    sizes["dp_shard_size"] = *degrees.dp_shard_size;
  }
  sizes["tp_size"] = degrees.tp_size;
  if (degrees.cp_size != 1) sizes["cp_size"] = degrees.cp_size;
  if (degrees.cp_method.has_value()) {
    sizes["cp_comm_strategy"] = *degrees.cp_method;
  }
  json["parallelism_config"] = sizes;
}

// Without fsdp the Trainer makes copies; the option for checkpointing
// activations applies to them as well.
void AddCopies(const TrainConfig& config, Findings& findings, Json& json) {
  json["fsdp"] = false;
  if (WrittenActivationCheckpointing(config, findings)) {
    json["gradient_checkpointing"] = true;
  }
  SayNotWritten(kTransformersName, config.mesh.num_processes, int64_t{0},
                "mesh.num_processes", kHasNoOption, findings);
  const int64_t tensor = *config.mesh.tensor_parallel_degree;
  if (tensor != 1) json["parallelism_config"] = {{"tp_size", tensor}};
  RefuseCutCopies(kTransformersName, config.mesh, findings);
  const Setting<int64_t>& copies = config.mesh.data_parallel_replicate_degree;
  if (*copies > 1) {
    findings.Changed(
        SettingPlace(copies, "mesh.data_parallel_replicate_degree"),
        "is not written: each rank has a copy");
  }
  TrainConfig read;
  read.sharding.reshard_after_forward = ReshardSetting(true);
  read.sharding.activation_checkpointing =
      config.sharding.activation_checkpointing;
  read.checkpoint.state_dict_type = StateDictType::kFullStateDict;
  LeaveOutSharding(config, read, kTransformersName, findings);
}

void AddCheckpoint(const CheckpointConfig& checkpoint, Findings& findings,
                   Json& json) {
  const bool has_folder = !checkpoint.folder->empty();
  if (has_folder) json["output_dir"] = *checkpoint.folder;
  if (*checkpoint.interval > 0) {
    json["save_strategy"] = "steps";
    json["save_steps"] = *checkpoint.interval;
  } else if (has_folder) {
    json["save_strategy"] = "no";
  }
  if (*checkpoint.keep_latest_k > 0) {
    json["save_total_limit"] = *checkpoint.keep_latest_k;
  }
  if (!checkpoint.initial_load_path->empty()) {
    json["resume_from_checkpoint"] = *checkpoint.initial_load_path;
  }
  SayNotWritten(kTransformersName, checkpoint.last_save_model_only, false,
                "checkpoint.last_save_model_only", kHasNoOption, findings);
}

void AddLoop(const LoopConfig& loop, Json& json) {
  const auto add = [&json](const char* key, const auto& setting) {
    if (setting->has_value()) json[key] = **setting;
  };
  add("max_steps", loop.steps);
  add("per_device_train_batch_size", loop.local_batch_size);
  add("gradient_accumulation_steps", loop.gradient_accumulation_steps);
  add("learning_rate", loop.lr);
  add("weight_decay", loop.weight_decay);
  add("max_grad_norm", loop.max_norm);
  add("seed", loop.seed);
  add("adam_beta1", loop.beta1);
  add("adam_beta2", loop.beta2);
  add("adam_epsilon", loop.eps);
}

// Writes the schedule if transformers can express it.
void AddSchedule(const LoopConfig& loop, Findings& findings, Json& json) {
  if (!loop.lr_schedule->has_value()) return;
  const LrSchedule& schedule = **loop.lr_schedule;
  const bool is_cosine = schedule.decay == LrDecay::kCosine;
  const bool has_minimum = schedule.min_factor > 0;
  if (schedule.counts_from_one || schedule.decay_ratio.has_value() ||
      schedule.total_steps.has_value() || schedule.decay == LrDecay::kSqrt ||
      schedule.initial_factor > 0 || (has_minimum && !is_cosine)) {
    findings.Changed(SettingPlace(loop.lr_schedule, "loop.lr_schedule"),
                     "is not written: transformers has no such curve, and "
                     "decays linearly");
    return;
  }
  json["lr_scheduler_type"] = schedule.decay == LrDecay::kLinear ? "linear"
                              : !is_cosine  ? "constant_with_warmup"
                              : has_minimum ? "cosine_with_min_lr"
                                            : "cosine";
  if (schedule.warmup_steps > 0) {
    json["warmup_steps"] = schedule.warmup_steps;
  } else if (schedule.warmup_ratio > 0) {
    json["warmup_ratio"] = schedule.warmup_ratio;
  }
  if (has_minimum) {
    json["lr_scheduler_kwargs"] = {{"min_lr_rate", schedule.min_factor}};
  }
}

void SayImplicitDefaults(const LoopConfig& loop, Findings& findings) {
  ImplicitDefaults open;
  open.Add(loop.lr, "learning_rate 5e-5");
  open.Add(loop.weight_decay, "weight_decay 0");
  open.Add(loop.max_norm, "max_grad_norm 1.0");
  open.Add(loop.seed, "seed 42");
  open.Add(loop.beta1, "adam_beta1 0.9");
  open.Add(loop.beta2, "adam_beta2 0.999");
  open.Add(loop.eps, "adam_epsilon 1e-8");
  open.Add(loop.lr_schedule, "a linear decay");
  open.Say("transformers", findings);
}

}  // namespace

std::string WriteTransformers(const TrainConfig& config, Findings& findings) {
  Json json = Json::object();
  AddCheckpoint(config.checkpoint, findings, json);
  AddLoop(config.loop, json);
  AddSchedule(config.loop, findings, json);
  SayImplicitDefaults(config.loop, findings);
  const absl::string_view precision = WrittenMixedPrecision(config, findings);
  // A key from TrainingArguments is written in any case, so that the file is
  // recognized.
  if (precision == "no") {
    json["bf16"] = false;
  } else {
    json[std::string(precision)] = true;
  }
  if (IsWithoutShards(config.mesh)) {
    AddCopies(config, findings, json);
  } else {
    json["fsdp"] = true;
    json["fsdp_config"] = Options(config, findings);
    AddDegrees(config.mesh, findings, json);
  }
  LeaveOutCommon(config, kTransformersName, findings);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fsdp::config
