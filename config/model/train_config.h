// SPDX-License-Identifier: Apache-2.0
// TrainConfig: how a model is trained, sharded and saved. Configs in all
// dialects are read into one, and fsdp::prepare carries it out. A program may
// also fill one in itself. Plain values; any thread.
#ifndef CONFIG_MODEL_TRAIN_CONFIG_H_
#define CONFIG_MODEL_TRAIN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/document/setting.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/parallel_plan.h"

namespace fsdp {

enum class ConfigDialect : uint8_t {
  kAccelerate,    // YAML or JSON, and environment variables
  kTransformers,  // JSON: TrainingArguments, or only an fsdp_config
  kComposer,      // YAML, or a Python dict: parallelism_config
  kTorchTitan,    // TOML, or the printed JSON of a resolved config
  // Only read, not written:
  kAxolotl,       // YAML, including accelerate's options
  kTorchtune,     // YAML: one recipe
  kVerl,          // YAML: the actor in a PPO run, or an SFT run
  kAutomodel,     // YAML: one recipe
  kPrimeRl,       // TOML: an RL or SFT run
  kLlamaFactory,  // YAML: version 1, with dist_config
};

// Which modules become groups; the root always is one.
enum class AutoWrapPolicy : uint8_t {
  kTransformerBasedWrap,  // modules in transformer_layer_cls_to_wrap
  kSizeBasedWrap,         // modules with min_num_params elements
  kNoWrap,                // none
  kDirectChildren,        // the root's children; Composer's way
};

enum class StateDictType : uint8_t {
  kShardedStateDict,  // a DCP directory; each rank writes a part
  kFullStateDict,     // one file, for other programs
};

// After forward: unset is fully_shard's default (free all except the root's);
// else whether to free, or to how many ranks to reshard.
using ReshardSetting = std::variant<std::monostate, bool, int64_t>;

// Degree values that are not rank counts.
inline constexpr int64_t kShardOverRest = -1;  // all, divided by the copies
// The ranks on one machine share a copy (FSDP1's HYBRID_SHARD); the number of
// copies follows.
inline constexpr int64_t kShardWithinNode = -2;
inline constexpr int64_t kReplicateOverRest = -1;  // all, divided by the shards

struct MeshConfig {
  Setting<int64_t> data_parallel_replicate_degree = 1;  // copies of the model
  // Ranks that share a copy. 1, with kReplicateOverRest copies, is plain data
  // parallelism (FSDP1's NO_SHARD).
  Setting<int64_t> data_parallel_shard_degree = kShardOverRest;
  // Ranks that share each layer: tensor parallelism.
  Setting<int64_t> tensor_parallel_degree = 1;
  // How layers are cut for it; empty: the program says.
  Setting<dcp::ParallelPlan> parallelize_plan = {};
  // Ranks that share each sequence: context parallelism.
  Setting<int64_t> context_parallel_degree = 1;
  // How attention gets keys and values for it: allgather, alltoall (ring
  // attention) or ulysses; see ContextParallelOptions::method.
  Setting<std::string> context_parallel_method = "allgather";
  // Stages, each of which has a part of the layers: pipeline parallelism.
  Setting<int64_t> pipeline_parallel_degree = 1;
  // Ranks that divide a layer's experts. They are not further ranks, but some
  // of those for shards, context and tensor parallelism.
  Setting<int64_t> expert_parallel_degree = 1;
  // Ranks that share each expert: 1, or as many as share each layer.
  Setting<int64_t> expert_tensor_parallel_degree = 1;
  // The number of ranks that the file was written for; 0: any.
  Setting<int64_t> num_processes = 0;
  // The program refuses a mesh in which all ranks are copies or share layers,
  // so that FSDP has none to shard over.
  Setting<bool> requires_shards = false;

  friend bool operator==(const MeshConfig&, const MeshConfig&) = default;
};

struct PrecisionConfig {
  // The dtype for parameters and optimizer state.
  Setting<dcp::DType> dtype = dcp::DType::kFloat32;
  // As MixedPrecisionPolicy; unset: no cast, and gradients are reduced in
  // `dtype`, as in PyTorch 2.15.
  Setting<std::optional<dcp::DType>> param_dtype = {};
  Setting<std::optional<dcp::DType>> reduce_dtype = {};
  Setting<std::optional<dcp::DType>> output_dtype = {};
  Setting<bool> cast_forward_inputs = true;

  dcp::DType computes_in() const { return param_dtype->value_or(*dtype); }
  dcp::DType reduces_in() const { return reduce_dtype->value_or(*dtype); }

  friend bool operator==(const PrecisionConfig&,
                         const PrecisionConfig&) = default;
};

struct ShardingConfig {
  // 1 or 2, as written. A config for FSDP1 is translated, and findings report
  // the changes.
  Setting<int64_t> fsdp_version = 2;
  Setting<ReshardSetting> reshard_after_forward = {};
  Setting<bool> cpu_offload = false;
  Setting<AutoWrapPolicy> auto_wrap_policy =
      AutoWrapPolicy::kTransformerBasedWrap;
  // Type names, "LlamaDecoderLayer"; empty: the model's own layers.
  Setting<std::vector<std::string>> transformer_layer_cls_to_wrap = {};
  Setting<int64_t> min_num_params = 100'000'000;
  // A regular expression: modules stay unsharded if their whole name matches.
  Setting<std::string> ignored_modules = {};
  // n: every n-th of the model's layers is computed again in backward; 0: none.
  Setting<int64_t> activation_checkpointing = 0;
  // Values that forward saves for backward stay in CPU memory until then; with
  // activation_checkpointing so do the inputs that layers keep.
  Setting<bool> activation_cpu_offload = false;

  friend bool operator==(const ShardingConfig&,
                         const ShardingConfig&) = default;
};

struct CheckpointConfig {
  Setting<StateDictType> state_dict_type = StateDictType::kShardedStateDict;
  // Rank 0 reads the weights that the run begins with; the others receive their
  // parts.
  Setting<bool> cpu_ram_efficient_loading = false;
  // The weights that the run begins with: any checkpoint that Tessera reads;
  // empty: none.
  Setting<std::string> initial_load_path = {};
  // Steps go here; empty: none are saved.
  Setting<std::string> folder = {};
  Setting<int64_t> interval = 0;       // steps; 0: only after the last
  Setting<bool> async = false;         // save while training goes on
  Setting<int64_t> keep_latest_k = 0;  // 0: all
  // The last save is only the model, whole, cast to export_dtype.
  Setting<bool> last_save_model_only = false;
  Setting<dcp::DType> export_dtype = dcp::DType::kFloat32;

  friend bool operator==(const CheckpointConfig&,
                         const CheckpointConfig&) = default;
};

// How the learning rate changes from step to step; learning_rate.h has the
// curve.
enum class LrDecay : uint8_t { kConstant, kLinear, kCosine, kSqrt };
struct LrSchedule {
  LrDecay decay = LrDecay::kConstant;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // of all steps, if warmup_steps is 0
  double min_factor = 0;    // share of lr where the decay ends
  // The last part of all steps, in which it decays; unset: all after the
  // warmup.
  std::optional<double> decay_ratio = {};
  std::optional<int64_t> total_steps = {};  // unset: the run's
  // In TorchTitan a warmup's first step already has a higher learning rate than
  // the warmup's start; in the others it has exactly that.
  bool counts_from_one = false;
  double initial_factor = 0;  // share of lr where the warmup begins

  friend bool operator==(const LrSchedule&, const LrSchedule&) = default;
};

// Settings in the same files that are not about sharding; unset: the program
// decides.
struct LoopConfig {
  Setting<std::optional<int64_t>> steps = {};
  Setting<std::optional<int64_t>> local_batch_size = {};  // per rank
  // for all ranks, per step
  Setting<std::optional<int64_t>> global_batch_size = {};
  Setting<std::optional<int64_t>> gradient_accumulation_steps = {};
  Setting<std::optional<int64_t>> seq_len = {};
  Setting<std::optional<int64_t>> seed = {};
  Setting<std::optional<double>> max_norm = {};  // for gradients; 0: any
  Setting<std::optional<double>> lr = {};
  Setting<std::optional<double>> weight_decay = {};
  Setting<std::optional<double>> beta1 = {};  // for AdamW, as eps is
  Setting<std::optional<double>> beta2 = {};
  Setting<std::optional<double>> eps = {};
  Setting<std::optional<LrSchedule>> lr_schedule = {};

  friend bool operator==(const LoopConfig&, const LoopConfig&) = default;
};

struct TrainConfig {
  MeshConfig mesh;
  PrecisionConfig precision;
  ShardingConfig sharding;
  CheckpointConfig checkpoint;
  LoopConfig loop;
};

// Compares values, not places. Ignores fsdp_version and requires_shards, which
// do not change the training.
bool same_training(const TrainConfig& a, const TrainConfig& b);

}  // namespace fsdp

#endif  // CONFIG_MODEL_TRAIN_CONFIG_H_
