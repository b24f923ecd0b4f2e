// SPDX-License-Identifier: Apache-2.0
// Chooses the words for accelerate's and transformers' options.
//
// Tested by tests/config/round_trip_test.cc.
#include "config/dialects/fields/written_fsdp_options.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/written_degrees.h"

namespace fsdp::config {
namespace {

using OptionalDtype = std::optional<dcp::DType>;

absl::string_view ShortName(const OptionalDtype& dtype) {
  if (dtype == dcp::DType::kBFloat16) return "bf16";
  if (dtype == dcp::DType::kFloat16) return "fp16";
  return "no";
}

}  // namespace

bool WrittenReshard(const TrainConfig& config, Findings& findings) {
  const Setting<ReshardSetting>& reshard =
      config.sharding.reshard_after_forward;
  if (const bool* value = std::get_if<bool>(&*reshard)) return *value;
  findings.Changed(
      SettingPlace(reshard, "sharding.reshard_after_forward"),
      std::holds_alternative<int64_t>(*reshard)
          ? "is written as true: a number of ranks cannot be expressed"
          : "is written as true, which frees the root's parameters as well");
  return true;
}

absl::string_view WrittenWrapPolicy(const TrainConfig& config,
                                    Findings& findings) {
  const Setting<AutoWrapPolicy>& policy = config.sharding.auto_wrap_policy;
  switch (*policy) {
    case AutoWrapPolicy::kSizeBasedWrap:
      return "SIZE_BASED_WRAP";
    case AutoWrapPolicy::kNoWrap:
      return "NO_WRAP";
    case AutoWrapPolicy::kTransformerBasedWrap:
      return "TRANSFORMER_BASED_WRAP";
    case AutoWrapPolicy::kDirectChildren:
      break;
  }
  findings.Changed(SettingPlace(policy, "sharding.auto_wrap_policy"),
                   "is written as TRANSFORMER_BASED_WRAP: groups of the root's "
                   "children cannot be expressed");
  return "TRANSFORMER_BASED_WRAP";
}

absl::string_view WrittenStateDictType(const TrainConfig& config) {
  return *config.checkpoint.state_dict_type == StateDictType::kFullStateDict
             ? "FULL_STATE_DICT"
             : "SHARDED_STATE_DICT";
}

bool WrittenActivationCheckpointing(const TrainConfig& config,
                                    Findings& findings) {
  const Setting<int64_t>& every = config.sharding.activation_checkpointing;
  if (*every > 1) {
    findings.Changed(SettingPlace(every, "sharding.activation_checkpointing"),
                     "is written as true: every layer, not some");
  }
  return *every > 0;
}

bool WrittenActivationOffload(const TrainConfig& config, Findings& findings) {
  const Setting<bool>& offloads = config.sharding.activation_cpu_offload;
  if (!*offloads) return false;
  const bool recomputes = *config.sharding.activation_checkpointing > 0;
  if (!recomputes) {
    findings.Changed(SettingPlace(offloads, "sharding.activation_cpu_offload"),
                     "is not written: accelerate offloads only inputs of "
                     "layers with activation_checkpointing");
  }
  return recomputes;
}

absl::string_view WrittenMixedPrecision(const TrainConfig& config,
                                        Findings& findings) {
  const PrecisionConfig& precision = config.precision;
  const absl::string_view name = ShortName(*precision.param_dtype);
  const bool is_other_param =
      name == "no" && precision.param_dtype->has_value();
  if (is_other_param) {
    findings.Changed(
        SettingPlace(precision.param_dtype, "precision.param_dtype"),
        "is written as no mixed precision");
  }
  OptionalDtype reduce;
  if (name != "no") {
    reduce = IsWithoutShards(config.mesh) ? OptionalDtype(dcp::DType::kFloat32)
                                          : *precision.param_dtype;
  }
  if (*precision.reduce_dtype != reduce) {
    findings.Changed(
        SettingPlace(precision.reduce_dtype, "precision.reduce_dtype"),
        IsWithoutShards(config.mesh)
            ? std::string("is not written: copies average their gradients in "
                          "the type of the parameters")
            : absl::StrCat("is written as ", name,
                           ": gradients are reduced as parameters are "
                           "gathered"));
  }
  return name;
}

void LeaveOutSharding(const TrainConfig& config, const TrainConfig& read,
                      absl::string_view dialect, Findings& findings) {
  const auto leave_out = [&](const auto& setting, const auto& as_read,
                             absl::string_view name) {
    SayNotWritten(dialect, setting, *as_read, name, kHasNoOption, findings);
  };
  const ShardingConfig& sharding = config.sharding;
  leave_out(sharding.reshard_after_forward, read.sharding.reshard_after_forward,
            "sharding.reshard_after_forward");
  leave_out(sharding.cpu_offload, read.sharding.cpu_offload,
            "sharding.cpu_offload");
  leave_out(sharding.auto_wrap_policy, read.sharding.auto_wrap_policy,
            "sharding.auto_wrap_policy");
  leave_out(sharding.transformer_layer_cls_to_wrap,
            read.sharding.transformer_layer_cls_to_wrap,
            "sharding.transformer_layer_cls_to_wrap");
  leave_out(sharding.min_num_params, read.sharding.min_num_params,
            "sharding.min_num_params");
  leave_out(sharding.ignored_modules, read.sharding.ignored_modules,
            "sharding.ignored_modules");
  leave_out(sharding.activation_checkpointing,
            read.sharding.activation_checkpointing,
            "sharding.activation_checkpointing");
  leave_out(sharding.activation_cpu_offload,
            read.sharding.activation_cpu_offload,
            "sharding.activation_cpu_offload");
  leave_out(config.checkpoint.state_dict_type, read.checkpoint.state_dict_type,
            "checkpoint.state_dict_type");
  leave_out(config.checkpoint.cpu_ram_efficient_loading,
            read.checkpoint.cpu_ram_efficient_loading,
            "checkpoint.cpu_ram_efficient_loading");
}

void LeaveOutCommon(const TrainConfig& config, absl::string_view dialect,
                    Findings& findings) {
  const auto leave_out = [&](const auto& setting, const auto& fallback,
                             absl::string_view name) {
    SayNotWritten(dialect, setting, *fallback, name, kHasNoOption, findings);
  };
  const TrainConfig none;
  leave_out(config.mesh.parallelize_plan, none.mesh.parallelize_plan,
            "mesh.parallelize_plan");
  RefuseDegree(dialect, config.mesh.pipeline_parallel_degree,
               "mesh.pipeline_parallel_degree", findings);
  RefuseDegree(dialect, config.mesh.expert_parallel_degree,
               "mesh.expert_parallel_degree", findings);
  RefuseDegree(dialect, config.mesh.expert_tensor_parallel_degree,
               "mesh.expert_tensor_parallel_degree", findings);
  leave_out(config.precision.dtype, none.precision.dtype, "precision.dtype");
  leave_out(config.precision.output_dtype, none.precision.output_dtype,
            "precision.output_dtype");
  leave_out(config.precision.cast_forward_inputs,
            none.precision.cast_forward_inputs,
            "precision.cast_forward_inputs");
  leave_out(config.checkpoint.async, none.checkpoint.async, "checkpoint.async");
  leave_out(config.checkpoint.export_dtype, none.checkpoint.export_dtype,
            "checkpoint.export_dtype");
  leave_out(config.loop.global_batch_size, none.loop.global_batch_size,
            "loop.global_batch_size");
  leave_out(config.loop.seq_len, none.loop.seq_len, "loop.seq_len");
}

}  // namespace fsdp::config
