// SPDX-License-Identifier: Apache-2.0
// Reads NeMo Automodel's YAML, as of August 2026: FSDP2Config and
// ParallelismSizes in `distributed`, and the maps of the recipe around it.
// Automodel's loader reads None and none as null.
//
// Tested by tests/config/dialects/automodel/read_test.cc.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/automodel/automodel.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/key_table.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// A size that is 0 or less counts as absent.
template <auto degree>
void ReadAutomodelSize(Section& section, const KeyRow& row,
                       TrainConfig& config) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
  Setting<int64_t> size;
  if (!section.Read(row.key, {.least = kAny}, size) || *size < 1) return;
  config.mesh.*degree = size;
}

void ReadAutomodelStrategy(Section& section, const KeyRow& row, TrainConfig&) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  for (const char* word : {"megatron_fsdp", "megatron-fsdp", "mfsdp"}) {
    if (!absl::EqualsIgnoreCase(node->text, word)) continue;
    section.Refuse(row.key, "", "Megatron-FSDP shards in buckets of its own");
    return;
  }
  Setting<bool> unused;
  section.Read(row.key, Choices<bool>{{"fsdp2", true}, {"ddp", false}}, unused);
}

// MixedPrecisionPolicy: types that are not in the map are not cast.
void ReadAutomodelTypes(Section& section, const KeyRow& row,
                        TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  PrecisionConfig& precision = config.precision;
  precision = {.dtype = precision.dtype};
  Section types(*node, section.findings());
  const auto read = [&](const char* key,
                        Setting<std::optional<dcp::DType>>& setting) {
    Setting<dcp::DType> type;
    if (types.Read(key, type)) setting = Some(*type, *type.place());
  };
  read("param_dtype", precision.param_dtype);
  read("reduce_dtype", precision.reduce_dtype);
  read("output_dtype", precision.output_dtype);
  types.Read("cast_forward_inputs", precision.cast_forward_inputs);
  types.Find("_target_");
  types.Finish();
}

// CPUOffloadPolicy, or null.
void ReadAutomodelOffload(Section& section, const KeyRow& row,
                          TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr || AsBool(*node) == false) return;
  config.sharding.cpu_offload = Setting<bool>(true, node->place);
}

void ReadAutomodelRecompute(Section& section, const KeyRow& row,
                            TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  Setting<bool> is_on;
  const Choices<bool> kModes = {
      {"true", true}, {"full", true},      {"on", true},     {"enabled", true},
      {"yes", true},  {"selective", true}, {"false", false}, {"off", false},
      {"no", false},  {"disabled", false}};
  if (!section.Read(row.key, kModes, is_on)) return;
  config.sharding.activation_checkpointing =
      Setting<int64_t>(*is_on ? 1 : 0, node->place);
  if (!absl::EqualsIgnoreCase(node->text, "selective")) return;
  section.findings().Changed(
      node->place,
      "is read as full: the same numbers, with more arithmetic and less "
      "memory");
}

void ReadAutomodelDecay(Section& section, const KeyRow& row,
                        TrainConfig& config) {
  Setting<LrDecay> decay;
  const Choices<LrDecay> kStyles = {{"cosine", LrDecay::kCosine},
                                    {"linear", LrDecay::kLinear},
                                    {"constant", LrDecay::kConstant}};
  if (!section.Read(row.key, kStyles, decay)) return;
  LrSchedule schedule = config.loop.lr_schedule->value_or(LrSchedule());
  schedule.decay = *decay;
  config.loop.lr_schedule = Some(schedule, *decay.place());
}

constexpr KeyRow kAutomodelSharding[] = {
    {"strategy", ReadAutomodelStrategy},
    {"_target_", Pass},
    {"_recursive_", Pass},
    {"_convert_", Pass},
    {"dp_size", ReadAutomodelSize<&MeshConfig::data_parallel_shard_degree>},
    {"dp_replicate_size",
     ReadAutomodelSize<&MeshConfig::data_parallel_replicate_degree>},
    {"tp_size", ReadAutomodelSize<&MeshConfig::tensor_parallel_degree>},
    {"cp_size", ReadAutomodelSize<&MeshConfig::context_parallel_degree>},
    {"pp_size", ReadAutomodelSize<&MeshConfig::pipeline_parallel_degree>},
    {"ep_size", ReadAutomodelSize<&MeshConfig::expert_parallel_degree>},
    {"reshard_after_forward", IntoLayerReshard},
    {"mp_policy", ReadAutomodelTypes},
    {"offload_policy", ReadAutomodelOffload},
    {"activation_checkpointing", ReadAutomodelRecompute},
    {"activation_checkpointing_scope", Ignore, "all layers are computed again"},
    {"sequence_parallel", IgnoreOn, "the plan says which inputs are cut"},
    {"tp_plan", Ignore, "give PrepareOptions::parallelize_plan"},
    {"autocast_dtype", Ignore, "there is no autocast; mp_policy casts"},
    {"enable_async_tensor_parallel", IgnoreOn,
     "it is an optimization of torch.compile"},
    {"enable_compile", IgnoreOn, "modules run as they are"},
    {"multimodal", Ignore, "the program makes its model"},
    {"moe", Pass},
    {"pipeline", Pass},
    {"patch_is_packed_sequence", Pass},
    {"defer_fsdp_grad_sync", Pass},
    {"enable_fsdp2_prefetch", Pass},
    {"fsdp2_backward_prefetch_depth", Pass},
    {"fsdp2_forward_prefetch_depth", Pass},
    {"broadcast_buffers", Pass},
    {"find_unused_parameters", Pass},
    {"static_graph", Pass},
    {"bucket_cap_mb", Pass},
    {"gradient_as_bucket_view", Pass},
    // In older versions.
    {"use_hf_tp_plan", Pass},
    {"backend", Pass},
    {"world_size", Pass},
};
constexpr KeyRow kAutomodelOptimizer[] = {
    {"_target_", IntoOptimizer},
    {"name", IntoOptimizer},
    {"lr", kIntoLoop<&LoopConfig::lr>},
    {"weight_decay", kIntoLoop<&LoopConfig::weight_decay>},
    {"betas", IntoBetas},
    {"eps", kIntoLoop<&LoopConfig::eps>},
};
constexpr KeyRow kAutomodelScheduler[] = {
    {"lr_decay_style", ReadAutomodelDecay},
    {"lr_warmup_steps", IntoSchedule<&LrSchedule::warmup_steps>},
    {"lr_decay_steps", IntoSchedule<&LrSchedule::total_steps>},
    {"min_lr", IntoMinimumRate},
    {"init_lr", Pass},
    {"max_lr", Pass},
};
constexpr KeyRow kAutomodelSteps[] = {
    {"global_batch_size", kIntoLoop<&LoopConfig::global_batch_size, 1>},
    {"local_batch_size", kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"max_steps", kIntoLoop<&LoopConfig::steps, 1>},
    {"ckpt_every_steps", kIntoCheckpoint<&CheckpointConfig::interval, 1>},
};
constexpr KeyRow kAutomodelCheckpoint[] = {
    {"enabled", Pass},
    {"checkpoint_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"is_async", kIntoCheckpoint<&CheckpointConfig::async>},
    {"max_recent_checkpoints",
     kIntoCheckpoint<&CheckpointConfig::keep_latest_k>},
};
constexpr KeyRow kAutomodelModel[] = {
    {"torch_dtype", Pass},
    {"dtype", Pass},
};
constexpr KeyRow kAutomodelNorm[] = {
    {"max_norm", kIntoLoop<&LoopConfig::max_norm>},
};
constexpr KeyRow kAutomodelRandom[] = {
    {"seed", kIntoLoop<&LoopConfig::seed>},
};
constexpr KeyRow kAutomodelRoot[] = {
    {"seed", kIntoLoop<&LoopConfig::seed>},
    {"peft", Ignore, kProgramMakesModel},
    {"quantization", Ignore, kProgramMakesModel},
    {"qat", Pass},
    {"fp8", Pass},
    {"compile", Pass},
};
constexpr absl::string_view kAutomodelRecipeReason =
    "they are for the recipe's model, data and logs";
constexpr KeyMap kAutomodelMaps[] = {
    {"rng", kAutomodelRandom, kAutomodelRecipeReason},
    {"", kAutomodelRoot, kAutomodelRecipeReason},
    {"distributed", kAutomodelSharding},
    {"optimizer", kAutomodelOptimizer, "the program makes its optimizer"},
    {"lr_scheduler", kAutomodelScheduler, "they are about weight decay"},
    {"step_scheduler", kAutomodelSteps, kAutomodelRecipeReason},
    {"checkpoint", kAutomodelCheckpoint, kAutomodelRecipeReason},
    {"clip_grad_norm", kAutomodelNorm, kAutomodelRecipeReason},
    {"model", kAutomodelModel, "the program makes its model"},
};

void SetAutomodelDefaults(TrainConfig& config) {
  config.precision = {.param_dtype = std::optional(dcp::DType::kBFloat16),
                      .reduce_dtype = std::optional(dcp::DType::kFloat32),
                      .output_dtype = std::optional(dcp::DType::kBFloat16)};
  config.checkpoint.folder = std::string("checkpoints/");
  config.checkpoint.interval = 100;
  config.loop = TorchAdamW();
  config.loop.max_norm = std::optional(1.0);
  config.loop.seed = std::optional<int64_t>(42);
  config.loop.global_batch_size = std::optional<int64_t>(32);
  config.loop.local_batch_size = std::optional<int64_t>(1);
}

void ReadAutomodelDtype(const Node& root, PrecisionConfig& precision,
                        Findings& findings) {
  const Node* model = root.Find("model");
  if (model == nullptr) return;
  Section section(*model, findings);
  const Node* type = section.Find({"torch_dtype", "dtype"});
  if (type != nullptr && !absl::EqualsIgnoreCase(type->text, "auto")) {
    section.Read(type == model->Find("dtype") ? "dtype" : "torch_dtype",
                 precision.dtype);
    return;
  }
  const SourceLocation place = type == nullptr ? model->place : type->place;
  precision.dtype = Setting<dcp::DType>(dcp::DType::kBFloat16, place);
  findings.Changed(place,
                   "leaves parameters in the type of the checkpoint, which is "
                   "read as bfloat16; write torch_dtype");
}

// The data axis includes the copies; the remaining ranks are shards.
void SettleAutomodelMesh(const Node& root, TrainConfig& config,
                         Findings& findings) {
  MeshConfig& mesh = config.mesh;
  const Node* strategy = NodeAt(root, "distributed.strategy");
  if (strategy != nullptr && absl::EqualsIgnoreCase(strategy->text, "ddp")) {
    for (const auto& [degree, name] :
         {std::pair(mesh.tensor_parallel_degree, "tp_size"),
          std::pair(mesh.context_parallel_degree, "cp_size"),
          std::pair(mesh.pipeline_parallel_degree, "pp_size"),
          std::pair(mesh.expert_parallel_degree, "ep_size"),
          std::pair(mesh.data_parallel_replicate_degree,
                    "dp_replicate_size")}) {
      if (*degree == 1) continue;
      findings.Problem(SettingPlace(degree, name),
                       absl::StrCat("is ", *degree,
                                    ", which NeMo Automodel refuses for ddp"));
    }
    ReadAsCopies(strategy->place, "is ddp, and is", mesh, findings);
    const Setting<std::optional<dcp::DType>> none;
    config.precision.param_dtype = none;
    config.precision.reduce_dtype = none;
    config.precision.output_dtype = none;
    return;
  }
  Setting<int64_t>& data = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& copies = mesh.data_parallel_replicate_degree;
  if (*data == kShardOverRest) return;
  const bool fits = *data % *copies == 0 && (*copies == 1 || *copies < *data);
  if (!fits) {
    findings.Problem(
        SettingPlace(copies, "dp_replicate_size"),
        absl::StrCat("is ", *copies, ", not a smaller divisor of dp_size, ",
                     *data));
    return;
  }
  data = Setting<int64_t>(*data / *copies, SettingPlace(data, "dp_size"));
}

// By default, stages keep parameters, and so do models with divided experts,
// unless moe sets it otherwise.
void SettleAutomodelReshard(const Node& root, TrainConfig& config,
                            Findings& findings) {
  Setting<ReshardSetting>& reshard = config.sharding.reshard_after_forward;
  const MeshConfig& mesh = config.mesh;
  if (*mesh.pipeline_parallel_degree > 1 &&
      NodeAt(root, "distributed.pipeline") == nullptr) {
    findings.Problem(SettingPlace(mesh.pipeline_parallel_degree, "pp_size"),
                     "has no distributed.pipeline, without which NeMo "
                     "Automodel refuses it");
  }
  if (reshard.place().has_value()) return;
  if (*mesh.expert_parallel_degree > 1) {
    const Node* moe = NodeAt(root, "distributed.moe");
    Setting<bool> frees = false;
    if (moe != nullptr) {
      Section(*moe, findings).Read("reshard_after_forward", frees);
    }
    reshard = *frees ? ReshardSetting() : ReshardSetting(false);
  } else if (*mesh.pipeline_parallel_degree > 1) {
    reshard = ReshardSetting(false);
  }
}

// A warmup begins at a tenth of the rate and takes a tenth of all steps, at
// most 1000; the curve ends at a hundredth.
void SettleAutomodelSchedule(const Node& root, LoopConfig& loop,
                             Findings& findings) {
  const Node* node = root.Find("lr_scheduler");
  if (node == nullptr || node->kind == Node::Kind::kNull) return;
  Section section(*node, findings);
  LrSchedule schedule = loop.lr_schedule->value_or(LrSchedule());
  if (node->Find("lr_decay_style") == nullptr) {
    schedule.decay = LrDecay::kCosine;
  }
  Setting<std::optional<double>> rate;
  section.Read("max_lr", RealRange{}, loop.lr);
  const double lr = (*loop.lr).value_or(0);
  schedule.initial_factor = 0.1;
  if (section.Read("init_lr", RealRange{.most = lr}, rate) && lr > 0) {
    schedule.initial_factor = **rate / lr;
  }
  if (section.Find("min_lr") == nullptr) schedule.min_factor = 0.01;
  if (schedule.decay == LrDecay::kConstant) schedule.min_factor = 0;
  constexpr int64_t kMostWarmup = 1000;
  if (section.Find("lr_warmup_steps") == nullptr) {
    if (loop.steps->has_value()) {
      schedule.warmup_steps = std::min(kMostWarmup, **loop.steps / 10);
    } else {
      schedule.warmup_ratio = 0.1;
      findings.Changed(node->place,
                       "has a warmup of a tenth of all steps, in NeMo "
                       "Automodel of at most 1000; write lr_warmup_steps");
    }
  }
  loop.lr_schedule = Some(schedule, node->place);
}

void SettleAutomodelCheckpoint(const Node& root, CheckpointConfig& checkpoint,
                               Findings& findings) {
  const Node* node = root.Find("checkpoint");
  if (node == nullptr) return;
  Setting<bool> is_on = true;
  Section(*node, findings).Read("enabled", is_on);
  if (!*is_on) checkpoint = CheckpointConfig();
}

}  // namespace

void ReadAutomodel(const Node& root_node, TrainConfig& config,
                   Findings& findings) {
  const Node root = WithNullWords(root_node);
  SetAutomodelDefaults(config);
  ReadKeyMaps(root, kAutomodelMaps, config, findings);
  if (const Node* fp8 = NodeAt(root, "fp8")) {
    Section(*fp8, findings)
        .Refuse("enabled", "false", WithoutFloat8("write enabled: false"));
  }
  ReadAutomodelDtype(root, config.precision, findings);
  SettleAutomodelMesh(root, config, findings);
  SettleAutomodelReshard(root, config, findings);
  SettleAutomodelSchedule(root, config.loop, findings);
  SettleAutomodelCheckpoint(root, config.checkpoint, findings);
  DropRedundantCasts(config.precision);
}

}  // namespace fsdp::config
