// SPDX-License-Identifier: Apache-2.0
// Writes a config as TorchTitan's TOML (0.2.2).
//
// Tested by tests/config/dialects/torchtitan/read_test.cc.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/written_degrees.h"
#include "config/dialects/torchtitan/torchtitan.h"

namespace fsdp::config {
namespace {

using dcp::DType;

constexpr absl::string_view kTorchTitanName = "TorchTitan";
constexpr int64_t kDefaultSteps = 10'000;

class TorchTitanWriter : private ConfigWriter {
 public:
  TorchTitanWriter(const TrainConfig& config, Findings& findings)
      : ConfigWriter(kTorchTitanName, config, findings) {}

  std::string Write() {
    Section("job");
    WriteFolder();
    Section("optimizer");
    WriteReal("lr", config_.loop.lr);
    WriteReal("weight_decay", config_.loop.weight_decay);
    WriteReal("beta1", config_.loop.beta1);
    WriteReal("beta2", config_.loop.beta2);
    WriteReal("eps", config_.loop.eps);
    Section("lr_scheduler");
    WriteSchedule();
    Section("training");
    WriteTraining();
    Section("parallelism");
    WriteMesh();
    WriteReshard();
    Section("checkpoint");
    WriteCheckpoint();
    Section("activation_checkpoint");
    WriteActivationCheckpoint();
    Section("debug");
    WriteInteger("seed", config_.loop.seed);
    SayImplicitDefaults();
    ReportUnwritten();
    return std::move(text_);
  }

 private:
  // The section's head is written before the first key.
  void Section(absl::string_view name) { section_ = std::string(name); }

  void Line(absl::string_view key, absl::string_view value) {
    if (!section_.empty()) {
      absl::StrAppend(&text_, text_.empty() ? "" : "\n", "[", section_, "]\n");
      section_.clear();
    }
    absl::StrAppend(&text_, key, " = ", value, "\n");
  }
  void WriteInteger(absl::string_view key,
                    const Setting<std::optional<int64_t>>& setting) {
    if (setting->has_value()) Line(key, absl::StrCat(**setting));
  }
  void WriteReal(absl::string_view key,
                 const Setting<std::optional<double>>& setting) {
    if (setting->has_value()) Line(key, RealText(**setting));
  }

  void WriteFolder() {
    const std::string& folder = *config_.checkpoint.folder;
    if (folder.empty()) return;
    // The reader joins both parts again.
    const size_t slash = folder.rfind('/');
    size_t head = slash == std::string::npos ? 0 : slash;
    // The slash stays if it is the root or if another slash precedes it.
    if (slash == 0 || (head > 0 && folder[head - 1] == '/')) ++head;
    Line("dump_folder", QuotedText(folder.substr(0, head)));
    folder_name_ =
        slash == std::string::npos ? folder : folder.substr(slash + 1);
  }

  void WriteSchedule() {
    const Setting<std::optional<LrSchedule>>& setting =
        config_.loop.lr_schedule;
    if (!setting->has_value()) return;
    const LrSchedule& schedule = **setting;
    const std::optional<int64_t> steps = schedule.total_steps.has_value()
                                             ? schedule.total_steps
                                             : *config_.loop.steps;
    const bool is_share =
        schedule.warmup_steps == 0 && schedule.warmup_ratio > 0;
    int64_t warmup = schedule.warmup_steps;
    if (is_share) {
      warmup = static_cast<int64_t>(
          std::ceil(schedule.warmup_ratio *
                    static_cast<double>(steps.value_or(kDefaultSteps))));
    }
    if (!schedule.counts_from_one || is_share ||
        schedule.decay == LrDecay::kConstant) {
      Changed(setting, "loop.lr_schedule",
              "is written as the nearest of TorchTitan's curves, which count "
              "steps from 1");
    }
    const bool is_constant = schedule.decay == LrDecay::kConstant;
    Line("warmup_steps", absl::StrCat(warmup));
    if (schedule.total_steps.has_value()) {
      Line("total_steps", absl::StrCat(*schedule.total_steps));
    }
    if (is_constant || schedule.decay_ratio.has_value()) {
      Line("decay_ratio", RealText(is_constant ? 0.0 : *schedule.decay_ratio));
    }
    if (!is_constant) {
      Line("decay_type", schedule.decay == LrDecay::kCosine ? "\"cosine\""
                         : schedule.decay == LrDecay::kSqrt ? "\"sqrt\""
                                                            : "\"linear\"");
    }
    if (schedule.min_factor > 0) {
      Line("min_lr_factor", RealText(schedule.min_factor));
    }
  }

  void WriteTraining() {
    const LoopConfig& loop = config_.loop;
    WriteInteger("steps", loop.steps);
    WriteInteger("local_batch_size", loop.local_batch_size);
    WriteGlobalBatch();
    WriteInteger("seq_len", loop.seq_len);
    WriteReal("max_norm", loop.max_norm);
    WriteTypes();
    if (*config_.sharding.cpu_offload) Line("enable_cpu_offload", "true");
  }

  // TorchTitan computes gradient_accumulation_steps from the batch sizes.
  void WriteGlobalBatch() {
    const LoopConfig& loop = config_.loop;
    WriteInteger("global_batch_size", loop.global_batch_size);
    if (!loop.gradient_accumulation_steps->has_value()) return;
    const int64_t steps = **loop.gradient_accumulation_steps;
    if (steps == 1 && !loop.global_batch_size->has_value()) return;
    Changed(loop.gradient_accumulation_steps,
            "loop.gradient_accumulation_steps",
            absl::StrCat("is not written: TorchTitan finds it from "
                         "global_batch_size",
                         loop.global_batch_size->has_value()
                             ? ""
                             : absl::StrCat(", which is ", steps,
                                            " local batches of all ranks")));
  }

  void WriteTypes() {
    const PrecisionConfig& precision = config_.precision;
    const DType dtype = WrittenSettingType(precision.dtype, "precision.dtype");
    const Setting<std::optional<DType>>& param = precision.param_dtype;
    const DType param_type =
        param->has_value()
            ? WrittenType(**param, param, "precision.param_dtype")
            : dtype;
    const DType reduce_type = precision.reduces_in();
    if (reduce_type != DType::kFloat32) {
      Changed(precision.reduce_dtype, "precision.reduce_dtype",
              "is written as float32: TorchTitan has no other");
    }
    Line("dtype", QuotedText(dcp::TorchName(dtype)));
    Line("mixed_precision_param", QuotedText(dcp::TorchName(param_type)));
    Line("mixed_precision_reduce", "\"float32\"");
  }

  DType WrittenSettingType(const Setting<DType>& setting,
                           absl::string_view name) {
    return WrittenType(*setting, setting, name);
  }
  template <typename T>
  DType WrittenType(DType type, const Setting<T>& setting,
                    absl::string_view name) {
    if (type == DType::kFloat32 || type == DType::kBFloat16) return type;
    const DType written =
        type == DType::kFloat16 ? DType::kBFloat16 : DType::kFloat32;
    Changed(setting, name,
            absl::StrCat("is written as ", dcp::TorchName(written),
                         ": TorchTitan has float32 and bfloat16"));
    return written;
  }

  void WriteMesh() {
    const MeshConfig& mesh = config_.mesh;
    RefuseShardsWithinNode(kTorchTitanName, mesh, findings_);
    const int64_t replicate = WrittenCopies(kTorchTitanName, mesh, findings_);
    Line("data_parallel_replicate_degree", absl::StrCat(replicate));
    Line("data_parallel_shard_degree",
         absl::StrCat(*mesh.data_parallel_shard_degree));
    Line("tensor_parallel_degree", absl::StrCat(*mesh.tensor_parallel_degree));
    for (const auto& [key, degree] :
         {std::pair("context_parallel_degree", mesh.context_parallel_degree),
          std::pair("pipeline_parallel_degree", mesh.pipeline_parallel_degree),
          std::pair("expert_parallel_degree", mesh.expert_parallel_degree),
          std::pair("expert_tensor_parallel_degree",
                    mesh.expert_tensor_parallel_degree)}) {
      if (*degree != 1) Line(key, absl::StrCat(*degree));
    }
    const std::optional<std::string> method =
        WrittenContextMethod(kTorchTitanName, mesh, findings_);
    if (method.has_value()) {
      Line("context_parallel_rotate_method", QuotedText(*method));
    }
  }

  void WriteReshard() {
    const Setting<ReshardSetting>& reshard =
        config_.sharding.reshard_after_forward;
    absl::string_view word = "default";
    if (const bool* value = std::get_if<bool>(&*reshard)) {
      word = *value ? "always" : "never";
    } else if (std::holds_alternative<int64_t>(*reshard)) {
      word = "always";
      Changed(reshard, "sharding.reshard_after_forward",
              "is written as always: TorchTitan takes no number of ranks");
    }
    Line("fsdp_reshard_after_forward", QuotedText(word));
  }

  void WriteCheckpoint() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    const bool saves = !checkpoint.folder->empty();
    if (saves || !checkpoint.initial_load_path->empty()) {
      Line("enable", "true");
    }
    if (!checkpoint.initial_load_path->empty()) {
      Line("initial_load_path", QuotedText(*checkpoint.initial_load_path));
      if (!saves) Line("load_only", "true");
    }
    if (saves) Line("folder", QuotedText(folder_name_));
    WriteInterval(saves);
    WriteKeepLatest(saves);
    if (*checkpoint.async) Line("async_mode", "\"async\"");
    if (saves || *checkpoint.last_save_model_only) {
      Line("last_save_model_only", BoolText(*checkpoint.last_save_model_only));
    }
    WriteExportType();
  }

  void WriteInterval(bool saves) {
    int64_t interval = *config_.checkpoint.interval;
    if (interval == 0 && saves) {
      interval = config_.loop.steps->value_or(kDefaultSteps);
      Changed(config_.checkpoint.interval, "checkpoint.interval",
              absl::StrCat("is written as ", interval,
                           ", the number of steps: TorchTitan needs one"));
    }
    if (interval != 0) Line("interval", absl::StrCat(interval));
  }

  void WriteKeepLatest(bool saves) {
    int64_t keep = *config_.checkpoint.keep_latest_k;
    if (keep == 1) {
      Changed(config_.checkpoint.keep_latest_k, "checkpoint.keep_latest_k",
              "is written as 2: TorchTitan refuses 1, because the last one may "
              "be half written");
      keep = 2;
    }
    if (saves || keep != 0) Line("keep_latest_k", absl::StrCat(keep));
  }

  void WriteExportType() {
    const Setting<DType>& type = config_.checkpoint.export_dtype;
    DType written = *type;
    if (written != DType::kFloat32 && written != DType::kBFloat16 &&
        written != DType::kFloat16) {
      written = DType::kFloat32;
      Changed(type, "checkpoint.export_dtype",
              "is written as float32: TorchTitan has float32, bfloat16 and "
              "float16");
    }
    if (written == DType::kFloat32) return;
    Line("export_dtype", QuotedText(dcp::TorchName(written)));
  }

  void WriteActivationCheckpoint() {
    const int64_t every = *config_.sharding.activation_checkpointing;
    Line("mode", every == 0   ? "\"none\""
                 : every == 1 ? "\"full\""
                              : "\"selective\"");
    if (every > 1) {
      Line("selective_ac_option", QuotedText(absl::StrCat(every)));
    }
  }

  void SayImplicitDefaults() {
    const LoopConfig& loop = config_.loop;
    ImplicitDefaults open;
    open.Add(loop.steps, "steps 10000");
    open.Add(loop.local_batch_size, "local_batch_size 8");
    open.Add(loop.seq_len, "seq_len 2048");
    open.Add(loop.max_norm, "max_norm 1.0");
    open.Add(loop.lr, "lr 8e-4");
    open.Add(loop.weight_decay, "weight_decay 0.1");
    open.Add(loop.beta1, "beta1 0.9");
    open.Add(loop.beta2, "beta2 0.95");
    open.Add(loop.eps, "eps 1e-8");
    open.Add(loop.lr_schedule, "a linear decay after 200 steps of warmup");
    open.Say("TorchTitan", findings_);
  }

  void ReportUnwritten() {
    const ShardingConfig& sharding = config_.sharding;
    const std::optional<DType> no_type;
    NotWritten(config_.mesh.parallelize_plan, dcp::ParallelPlan(),
               "mesh.parallelize_plan", "cuts layers by the plan of its model");
    NotWritten(config_.mesh.num_processes, int64_t{0}, "mesh.num_processes",
               "takes the number from its launcher");
    NotWritten(config_.precision.output_dtype, no_type,
               "precision.output_dtype", "leaves outputs as they are");
    NotWritten(config_.precision.cast_forward_inputs, true,
               "precision.cast_forward_inputs", "always casts them");
    constexpr absl::string_view kLayers = "makes groups of the model's layers";
    NotWritten(sharding.auto_wrap_policy, AutoWrapPolicy::kTransformerBasedWrap,
               "sharding.auto_wrap_policy", kLayers);
    NotWritten(sharding.transformer_layer_cls_to_wrap, {},
               "sharding.transformer_layer_cls_to_wrap", kLayers);
    NotWritten(sharding.min_num_params, ShardingConfig().min_num_params.value(),
               "sharding.min_num_params", kLayers);
    NotWritten(sharding.activation_cpu_offload, false,
               "sharding.activation_cpu_offload",
               "keeps activations on the device");
    NotWritten(sharding.ignored_modules, {}, "sharding.ignored_modules",
               "shards all modules");
    NotWritten(config_.checkpoint.state_dict_type,
               StateDictType::kShardedStateDict, "checkpoint.state_dict_type",
               "saves sharded checkpoints");
    NotWritten(config_.checkpoint.cpu_ram_efficient_loading, false,
               "checkpoint.cpu_ram_efficient_loading",
               "has each rank read its part");
  }

  std::string section_;
  std::string folder_name_;
};

}  // namespace

std::string WriteTorchTitan(const TrainConfig& config, Findings& findings) {
  return TorchTitanWriter(config, findings).Write();
}

}  // namespace fsdp::config
