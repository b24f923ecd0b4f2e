// SPDX-License-Identifier: Apache-2.0
// Writes a config as accelerate's YAML, with the keys that `accelerate config`
// writes.
//
// Tested by tests/config/round_trip_test.cc.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/dialects/accelerate/accelerate.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/written_degrees.h"
#include "config/dialects/fields/written_fsdp_options.h"

namespace fsdp::config {
namespace {

constexpr absl::string_view kAccelerateName = "accelerate";

bool IsPlainName(absl::string_view name) {
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (!absl::ascii_isalnum(byte) && c != '_' && c != '.') return false;
  }
  return !name.empty() &&
         absl::ascii_isalpha(static_cast<unsigned char>(name[0]));
}

// accelerate expects names in one string, with commas between them; names that
// contain commas are written as a list.
std::string NamesText(const std::vector<std::string>& names) {
  std::string list;
  bool are_plain = true;
  for (const std::string& name : names) {
    are_plain = are_plain && IsPlainName(name);
    absl::StrAppend(&list, list.empty() ? "" : ", ", QuotedText(name));
  }
  if (are_plain) return QuotedText(absl::StrJoin(names, ","));
  return absl::StrCat("[", list, "]");
}

std::string OptionsText(const TrainConfig& config, Findings& findings) {
  const ShardingConfig& sharding = config.sharding;
  std::string text = "fsdp_config:\n";
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    absl::StrAppend(&text, "  fsdp_", key, ": ", value, "\n");
  };
  add("activation_checkpointing",
      BoolText(WrittenActivationCheckpointing(config, findings)));
  if (WrittenActivationOffload(config, findings)) {
    add("activation_checkpointing_offload", "true");
  }
  add("auto_wrap_policy", WrittenWrapPolicy(config, findings));
  add("cpu_ram_efficient_loading",
      BoolText(*config.checkpoint.cpu_ram_efficient_loading));
  if (!sharding.ignored_modules->empty()) {
    add("ignored_modules", QuotedText(*sharding.ignored_modules));
  }
  if (*sharding.min_num_params != *ShardingConfig().min_num_params) {
    add("min_num_params", absl::StrCat(*sharding.min_num_params));
  }
  add("offload_params", BoolText(*sharding.cpu_offload));
  add("reshard_after_forward", BoolText(WrittenReshard(config, findings)));
  add("state_dict_type", WrittenStateDictType(config));
  if (!sharding.transformer_layer_cls_to_wrap->empty()) {
    add("transformer_layer_cls_to_wrap",
        NamesText(*sharding.transformer_layer_cls_to_wrap));
  }
  add("version", "2");
  return text;
}

std::string ParallelismText(const MeshConfig& mesh, Findings& findings) {
  const WrittenDegrees degrees = WrittenSizes(kAccelerateName, mesh, findings);
  if (degrees.is_plain()) return "";
  std::string text = "parallelism_config:\n";
  const auto add = [&text](absl::string_view key, const absl::AlphaNum& value) {
    absl::StrAppend(&text, "  parallelism_config_", key, ": ", value, "\n");
  };
  add("dp_replicate_size", degrees.dp_replicate_size);
  if (degrees.dp_shard_size.has_value()) {
    add("dp_shard_size", *degrees.dp_shard_size);
  }
  add("tp_size", degrees.tp_size);
  if (degrees.cp_size != 1) add("cp_size", degrees.cp_size);
  if (degrees.cp_method.has_value()) {
    add("cp_comm_strategy", *degrees.cp_method);
  }
  return text;
}

// accelerate's tensor parallelism without FSDP.
std::string TensorText(const MeshConfig& mesh) {
  const int64_t size = *mesh.tensor_parallel_degree;
  return size == 1
             ? ""
             : absl::StrCat(
                   "parallelism_config:\n  parallelism_config_tp_size: ", size,
                   "\n");
}

// The number of ranks; 0: not known. The number of copies without shards counts
// as known.
int64_t WrittenProcesses(const MeshConfig& mesh, Findings& findings) {
  const Setting<int64_t>& copies = mesh.data_parallel_replicate_degree;
  if (!IsWithoutShards(mesh) || *copies == kReplicateOverRest) {
    return *mesh.num_processes;
  }
  const int64_t ranks = *copies * *mesh.tensor_parallel_degree;
  if (ranks != *mesh.num_processes) {
    findings.Changed(
        SettingPlace(mesh.num_processes, "mesh.num_processes"),
        absl::StrCat("is written as ", ranks, ", as many as the degrees make"));
  }
  if (*copies > 1) {
    findings.Changed(
        SettingPlace(copies, "mesh.data_parallel_replicate_degree"),
        "is written as num_processes, each of which has a copy");
  }
  return ranks;
}

void LeaveOutOthers(const TrainConfig& config, Findings& findings) {
  LeaveOutCommon(config, kAccelerateName, findings);
  const auto leave_out = [&](const auto& setting, const auto& fallback,
                             absl::string_view name) {
    SayNotWritten(kAccelerateName, setting, *fallback, name, kHasNoOption,
                  findings);
  };
  const CheckpointConfig& checkpoint = config.checkpoint;
  const CheckpointConfig no_checkpoint;
  leave_out(checkpoint.initial_load_path, no_checkpoint.initial_load_path,
            "checkpoint.initial_load_path");
  leave_out(checkpoint.folder, no_checkpoint.folder, "checkpoint.folder");
  leave_out(checkpoint.interval, no_checkpoint.interval, "checkpoint.interval");
  leave_out(checkpoint.keep_latest_k, no_checkpoint.keep_latest_k,
            "checkpoint.keep_latest_k");
  leave_out(checkpoint.last_save_model_only, no_checkpoint.last_save_model_only,
            "checkpoint.last_save_model_only");
  const LoopConfig& loop = config.loop;
  const LoopConfig no_loop;
  leave_out(loop.steps, no_loop.steps, "loop.steps");
  leave_out(loop.local_batch_size, no_loop.local_batch_size,
            "loop.local_batch_size");
  leave_out(loop.gradient_accumulation_steps,
            no_loop.gradient_accumulation_steps,
            "loop.gradient_accumulation_steps");
  leave_out(loop.seed, no_loop.seed, "loop.seed");
  leave_out(loop.max_norm, no_loop.max_norm, "loop.max_norm");
  leave_out(loop.lr, no_loop.lr, "loop.lr");
  leave_out(loop.weight_decay, no_loop.weight_decay, "loop.weight_decay");
  leave_out(loop.beta1, no_loop.beta1, "loop.beta1");
  leave_out(loop.beta2, no_loop.beta2, "loop.beta2");
  leave_out(loop.eps, no_loop.eps, "loop.eps");
  leave_out(loop.lr_schedule, no_loop.lr_schedule, "loop.lr_schedule");
}

}  // namespace

std::string WriteAccelerate(const TrainConfig& config, Findings& findings) {
  std::string text = "compute_environment: LOCAL_MACHINE\n";
  const MeshConfig& mesh = config.mesh;
  const bool is_sharded = !IsWithoutShards(mesh);
  if (is_sharded) {
    text += "distributed_type: FSDP\n";
    text += OptionsText(config, findings);
  } else {
    text += "distributed_type: MULTI_GPU\n";
    TrainConfig read;
    read.sharding.reshard_after_forward = ReshardSetting(true);
    read.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
    read.checkpoint.state_dict_type = StateDictType::kFullStateDict;
    LeaveOutSharding(config, read, kAccelerateName, findings);
    RefuseCutCopies(kAccelerateName, mesh, findings);
  }
  absl::StrAppend(&text, "mixed_precision: '",
                  WrittenMixedPrecision(config, findings), "'\n");
  if (const int64_t ranks = WrittenProcesses(mesh, findings); ranks > 0) {
    absl::StrAppend(&text, "num_processes: ", ranks, "\n");
  }
  text += is_sharded ? ParallelismText(mesh, findings) : TensorText(mesh);
  LeaveOutOthers(config, findings);
  return text;
}

}  // namespace fsdp::config
