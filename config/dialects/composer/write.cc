// SPDX-License-Identifier: Apache-2.0
// Writes a config as Composer's YAML, with a parallelism_config for FSDP2.
//
// Tested by tests/config/dialects/composer/read_test.cc.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "config/dialects/composer/composer.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/written_degrees.h"
#include "config/dialects/fields/written_fsdp_options.h"
#include "config/document/plan_node.h"
#include "dcp/base/bytes.h"

namespace fsdp::config {
namespace {

using dcp::DType;

constexpr absl::string_view kComposerName = "Composer";
constexpr uint64_t kMostSamples = std::numeric_limits<int64_t>::max();

uint64_t Unsigned(int64_t value) {
  return value < 0 ? 0 : static_cast<uint64_t>(value);
}

bool HasSixteenBits(DType type) {
  return type == DType::kBFloat16 || type == DType::kFloat16;
}

bool IsWord(DType type) {
  return type == DType::kFloat32 || HasSixteenBits(type);
}

class ComposerWriter : private ConfigWriter {
 public:
  ComposerWriter(const TrainConfig& config, Findings& findings)
      : ConfigWriter(kComposerName, config, findings) {}

  std::string Write() {
    WriteLoop();
    WriteCheckpoint();
    WriteOptimizer();
    WriteSchedule();
    WriteModel();
    ChoosePrecision();
    Line(0, "precision", precision_);
    if (IsWithoutShards(config_.mesh)) {
      WriteCopies();
    } else {
      Open(0, "parallelism_config");
      // In FSDP1 the block has this name too, because the Trainer looks for no
      // other name in a map.
      text_ += "  # With FSDP_VERSION=2 in the environment this is FSDP2.\n";
      Open(1, "fsdp");
      WriteMesh();
      WriteSharding();
      WriteTensorParallel();
      SayGroups();
    }
    ReportUnwritten();
    return std::move(text_);
  }

 private:
  void Line(int depth, absl::string_view key, absl::string_view value) {
    absl::StrAppend(&text_, std::string(2 * static_cast<size_t>(depth), ' '),
                    key, ": ", value, "\n");
  }
  void Open(int depth, absl::string_view key) {
    absl::StrAppend(&text_, std::string(2 * static_cast<size_t>(depth), ' '),
                    key, ":\n");
  }
  void WriteInteger(absl::string_view key,
                    const Setting<std::optional<int64_t>>& setting) {
    if (setting->has_value()) Line(0, key, absl::StrCat(**setting));
  }

  void WriteLoop() {
    const LoopConfig& loop = config_.loop;
    if (loop.steps->has_value()) {
      Line(0, "max_duration", absl::StrCat(**loop.steps, "ba"));
    }
    WriteInteger("device_train_microbatch_size", loop.local_batch_size);
    WriteAccumulation();
    WriteInteger("global_train_batch_size", loop.global_batch_size);
    WriteInteger("max_seq_len", loop.seq_len);
    WriteInteger("seed", loop.seed);
    if (!loop.max_norm->has_value()) return;
    Open(0, "algorithms");
    Open(1, "gradient_clipping");
    Line(2, "clipping_type", "norm");
    Line(2, "clipping_threshold", RealText(**loop.max_norm));
  }

  // Writes a rank's batch for one step: the number of microbatches times their
  // size.
  void WriteAccumulation() {
    const LoopConfig& loop = config_.loop;
    if (!loop.gradient_accumulation_steps->has_value()) return;
    const std::optional<uint64_t> batch =
        dcp::CheckedMul(Unsigned(**loop.gradient_accumulation_steps),
                        Unsigned(loop.local_batch_size->value_or(0)));
    if (!batch.has_value() || *batch == 0 || *batch > kMostSamples) {
      Changed(loop.gradient_accumulation_steps,
              "loop.gradient_accumulation_steps",
              "is not written: Composer finds it from the batch of a rank, "
              "which is not known");
      return;
    }
    Line(0, "device_train_batch_size", absl::StrCat(*batch));
  }

  void WriteCheckpoint() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    if (!checkpoint.initial_load_path->empty()) {
      Line(0, "load_path", QuotedText(*checkpoint.initial_load_path));
      Line(0, "load_weights_only", "true");
    }
    if (!checkpoint.folder->empty()) {
      Line(0, "save_folder", QuotedText(*checkpoint.folder));
    }
    if (*checkpoint.interval != 0) {
      Line(0, "save_interval", absl::StrCat(*checkpoint.interval, "ba"));
    } else if (!checkpoint.folder->empty()) {
      // One save after the last step, which Composer makes as well.
      Line(0, "save_interval", "1dur");
    }
    if (*checkpoint.keep_latest_k != 0) {
      Line(0, "save_num_checkpoints_to_keep",
           absl::StrCat(*checkpoint.keep_latest_k));
    }
  }

  void WriteOptimizer() {
    const LoopConfig& loop = config_.loop;
    const bool has_betas = loop.beta1->has_value() || loop.beta2->has_value();
    if (!loop.lr->has_value() && !loop.weight_decay->has_value() &&
        !has_betas && !loop.eps->has_value()) {
      return;
    }
    Open(0, "optimizer");
    // decoupled_adamw would read weight_decay as another number.
    Line(1, "name", "adamw");
    if (loop.lr->has_value()) Line(1, "lr", RealText(**loop.lr));
    if (loop.weight_decay->has_value()) {
      Line(1, "weight_decay", RealText(**loop.weight_decay));
    }
    if (has_betas) {
      Line(1, "betas",
           absl::StrCat("[", RealText(loop.beta1->value_or(0.9)), ", ",
                        RealText(loop.beta2->value_or(0.999)), "]"));
    }
    if (loop.eps->has_value()) Line(1, "eps", RealText(**loop.eps));
    ImplicitDefaults open;
    open.Add(loop.weight_decay, "weight_decay 1e-2");
    open.Add(loop.beta1, "beta1 0.9");
    open.Add(loop.beta2, "beta2 0.999");
    open.Add(loop.eps, "eps 1e-8");
    open.Say("Composer's adamw", findings_);
  }

  // Writes the schedule in LLM Foundry's words if they can express it.
  void WriteSchedule() {
    const Setting<std::optional<LrSchedule>>& setting =
        config_.loop.lr_schedule;
    if (!setting->has_value()) return;
    const LrSchedule& schedule = **setting;
    if (schedule.counts_from_one || schedule.decay_ratio.has_value() ||
        schedule.total_steps.has_value() || schedule.decay == LrDecay::kSqrt ||
        schedule.initial_factor > 0) {
      Changed(setting, "loop.lr_schedule",
              "is not written: Composer has no such curve");
      return;
    }
    Open(0, "scheduler");
    Line(1, "name",
         schedule.decay == LrDecay::kCosine   ? "cosine_with_warmup"
         : schedule.decay == LrDecay::kLinear ? "linear_decay_with_warmup"
                                              : "constant_with_warmup");
    Line(1, "t_warmup",
         schedule.warmup_steps == 0 && schedule.warmup_ratio > 0
             ? QuotedText(absl::StrCat(RealText(schedule.warmup_ratio), "dur"))
             : absl::StrCat(schedule.warmup_steps, "ba"));
    if (schedule.decay != LrDecay::kConstant) {
      Line(1, "alpha_f", RealText(schedule.min_factor));
    }
  }

  void WriteModel() {
    const Setting<DType>& type = config_.precision.dtype;
    if (*type == DType::kFloat32) return;
    if (!HasSixteenBits(*type)) {
      Changed(type, "precision.dtype",
              "is written as float32: Composer has float32, bfloat16 and "
              "float16");
      return;
    }
    Open(0, "model");
    Line(1, "master_weights_dtype", dcp::TorchName(*type));
  }

  // Sets precision_ and mixed_precision_, to a word if there is one.
  void ChoosePrecision() {
    const std::optional<DType> param =
        WrittenType(config_.precision.param_dtype, "precision.param_dtype");
    const std::optional<DType> reduce =
        WrittenType(config_.precision.reduce_dtype, "precision.reduce_dtype");
    precision_ = "fp32";
    if (param.has_value() && HasSixteenBits(*param)) {
      precision_ = *param == DType::kBFloat16 ? "amp_bf16" : "amp_fp16";
      if (reduce == DType::kFloat32 || reduce == param) {
        mixed_precision_ = reduce == param ? "PURE" : "DEFAULT";
        return;
      }
    } else if (!param.has_value() && !reduce.has_value()) {
      mixed_precision_ = "DEFAULT";
      return;
    }
    const auto word = [](std::optional<DType> type) {
      return type.has_value() ? dcp::TorchName(*type) : "null";
    };
    mixed_precision_ = absl::StrCat("{param_dtype: ", word(param),
                                    ", reduce_dtype: ", word(reduce), "}");
  }

  std::optional<DType> WrittenType(const Setting<std::optional<DType>>& setting,
                                   absl::string_view name) {
    if (!setting->has_value() || IsWord(**setting)) return *setting;
    Changed(setting, name,
            "is not written: Composer has float32, bfloat16 and float16");
    return std::nullopt;
  }

  // Composer shards over all ranks: for FSDP2 it takes a mesh only as a Python
  // object.
  void WriteMesh() {
    const MeshConfig& mesh = config_.mesh;
    RefuseShardsWithinNode(kComposerName, mesh, findings_);
    const bool are_all_shards =
        *mesh.data_parallel_replicate_degree == kReplicateOverRest &&
        *mesh.data_parallel_shard_degree == kShardOverRest;
    if (!are_all_shards) {
      RefuseDegree(kComposerName, mesh.data_parallel_replicate_degree,
                   "mesh.data_parallel_replicate_degree", findings_);
    }
    if (*mesh.data_parallel_shard_degree > 0) {
      Changed(mesh.data_parallel_shard_degree,
              "mesh.data_parallel_shard_degree",
              "is not written: Composer shards over all ranks");
    }
  }

  // Without a block Composer trains copies.
  void WriteCopies() {
    const MeshConfig& mesh = config_.mesh;
    Open(0, "parallelism_config");
    Line(1, "fsdp", "null");
    if (*mesh.tensor_parallel_degree != 1) {
      findings_.Problem(
          SettingPlace(mesh.tensor_parallel_degree,
                       "mesh.tensor_parallel_degree"),
          absl::StrCat("is ", *mesh.tensor_parallel_degree,
                       ", but Composer cuts layers only together with FSDP"));
    }
    if (*mesh.data_parallel_replicate_degree > 0) {
      Changed(mesh.data_parallel_replicate_degree,
              "mesh.data_parallel_replicate_degree",
              "is not written: each rank has a copy");
    }
    TrainConfig read;
    read.sharding.reshard_after_forward = ReshardSetting(true);
    read.sharding.auto_wrap_policy = AutoWrapPolicy::kDirectChildren;
    read.checkpoint.state_dict_type = StateDictType::kFullStateDict;
    LeaveOutSharding(config_, read, kComposerName, findings_);
    const bool computes_in_16_bits = precision_ != "fp32";
    NotWritten(config_.precision.reduce_dtype,
               computes_in_16_bits ? std::optional(DType::kFloat32)
                                   : std::optional<DType>(),
               "precision.reduce_dtype",
               "averages gradients in the type of the parameters");
    if (computes_in_16_bits) return;
    NotWritten(config_.precision.param_dtype, std::optional<DType>(),
               "precision.param_dtype", "computes in the type of the weights");
  }

  void WriteTensorParallel() {
    const MeshConfig& mesh = config_.mesh;
    const Setting<dcp::ParallelPlan>& plan = mesh.parallelize_plan;
    if (*mesh.tensor_parallel_degree == 1 && plan->entries().empty()) return;
    Open(1, "tp");
    Line(2, "tensor_parallel_degree",
         absl::StrCat(*mesh.tensor_parallel_degree));
    if (plan->entries().empty()) return;
    Changed(plan, "mesh.parallelize_plan",
            "is written, but Composer itself takes a plan as objects of Python "
            "alone");
    Open(2, "layer_plan");
    for (const dcp::ParallelPlan::Entry& entry : plan->entries()) {
      const std::string key = QuotedText(entry.pattern);
      // YAML marks keys longer than 1024 characters.
      const bool is_long = key.size() > 1000;
      Line(3, is_long ? absl::StrCat("? ", key, "\n      ") : key,
           style_text(entry.style));
    }
  }

  void WriteSharding() {
    const ShardingConfig& sharding = config_.sharding;
    WriteReshard(sharding.reshard_after_forward);
    if (*sharding.cpu_offload) {
      Changed(sharding.cpu_offload, "sharding.cpu_offload",
              "is written, but Composer itself does not offload");
      Line(2, "cpu_offload", "true");
    }
    const int64_t every = *sharding.activation_checkpointing;
    if (every > 1) {
      Changed(sharding.activation_checkpointing,
              "sharding.activation_checkpointing",
              "is written as true, every layer: Composer leaves none out");
    }
    Line(2, "activation_checkpointing", BoolText(every != 0));
    if (*sharding.activation_cpu_offload) {
      Line(2, "activation_cpu_offload", "true");
    }
    Line(2, "state_dict_type",
         *config_.checkpoint.state_dict_type == StateDictType::kFullStateDict
             ? "full"
             : "sharded");
    Line(2, "load_monolith_rank0_only",
         BoolText(*config_.checkpoint.cpu_ram_efficient_loading));
    Line(2, "mixed_precision", mixed_precision_);
  }

  void WriteReshard(const Setting<ReshardSetting>& reshard) {
    if (const int64_t* ranks = std::get_if<int64_t>(&*reshard)) {
      Line(2, "reshard_after_forward", absl::StrCat(*ranks));
      return;
    }
    const bool* value = std::get_if<bool>(&*reshard);
    if (value == nullptr) {
      Changed(reshard, "sharding.reshard_after_forward",
              "is written as true: unset keeps the root's parameters until "
              "the end of backward, which Composer cannot express");
    }
    Line(2, "reshard_after_forward", BoolText(value == nullptr || *value));
  }

  void SayGroups() {
    const ShardingConfig& sharding = config_.sharding;
    constexpr absl::string_view kChildren =
        "makes groups of the children of the model";
    NotWritten(sharding.auto_wrap_policy, AutoWrapPolicy::kDirectChildren,
               "sharding.auto_wrap_policy", kChildren);
    NotWritten(sharding.transformer_layer_cls_to_wrap, {},
               "sharding.transformer_layer_cls_to_wrap", kChildren);
    NotWritten(sharding.min_num_params, ShardingConfig().min_num_params.value(),
               "sharding.min_num_params", kChildren);
    NotWritten(sharding.ignored_modules, {}, "sharding.ignored_modules",
               "takes modules as objects of Python alone");
  }

  void ReportUnwritten() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    NotWritten(config_.mesh.num_processes, int64_t{0}, "mesh.num_processes",
               "takes the number from its launcher");
    for (const auto& [degree, name] :
         {std::pair(config_.mesh.context_parallel_degree,
                    "mesh.context_parallel_degree"),
          std::pair(config_.mesh.pipeline_parallel_degree,
                    "mesh.pipeline_parallel_degree"),
          std::pair(config_.mesh.expert_parallel_degree,
                    "mesh.expert_parallel_degree"),
          std::pair(config_.mesh.expert_tensor_parallel_degree,
                    "mesh.expert_tensor_parallel_degree")}) {
      RefuseDegree(kComposerName, degree, name, findings_);
    }
    NotWritten(config_.precision.output_dtype, std::optional<DType>(),
               "precision.output_dtype", "leaves outputs as they are");
    NotWritten(config_.precision.cast_forward_inputs, true,
               "precision.cast_forward_inputs", "always casts them");
    NotWritten(checkpoint.async, false, "checkpoint.async",
               "waits for its saves");
    NotWritten(checkpoint.last_save_model_only, false,
               "checkpoint.last_save_model_only",
               "saves the same after every interval");
    NotWritten(checkpoint.export_dtype, DType::kFloat32,
               "checkpoint.export_dtype", "saves the types of the model");
  }

  std::string precision_;
  std::string mixed_precision_;
};

}  // namespace

std::string WriteComposer(const TrainConfig& config, Findings& findings) {
  return ComposerWriter(config, findings).Write();
}

}  // namespace fsdp::config
