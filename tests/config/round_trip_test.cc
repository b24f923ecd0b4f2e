// SPDX-License-Identifier: Apache-2.0
// Writes a config from each dialect in each of the four, and reads it back. The
// result must be equal, except where the writers reported that they cannot
// express a setting. A finding without a cause fails, and so does a difference
// without a finding.
#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/dialects/fields/config_writer.h"
#include "config/model/train_config.h"
#include "config/read_config.h"
#include "config/write_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ConfigDialect kDialects[] = {
    ConfigDialect::kAccelerate, ConfigDialect::kTransformers,
    ConfigDialect::kComposer, ConfigDialect::kTorchTitan};

absl::string_view FileName(ConfigDialect dialect) {
  switch (dialect) {
    case ConfigDialect::kTransformers:
      return "run.json";
    case ConfigDialect::kTorchTitan:
      return "run.toml";
    default:
      return "run.yaml";
  }
}

struct Source {
  const char* name;
  ConfigDialect dialect;
  const char* text;

  friend std::ostream& operator<<(std::ostream& out, const Source& source) {
    return out << source.name;
  }
};

const Source kSources[] = {
    {"AccelerateFsdp2", ConfigDialect::kAccelerate, R"(
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
  fsdp_offload_params: true
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_min_num_params: 1000
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_cpu_ram_efficient_loading: true
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true
)"},
    {"AccelerateFsdp1", ConfigDialect::kAccelerate, R"(
distributed_type: FSDP
mixed_precision: 'no'
fsdp_config:
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer,Head
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_sync_module_states: true
)"},
    {"AccelerateMesh", ConfigDialect::kAccelerate, R"(
distributed_type: FSDP
mixed_precision: fp16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: NO_WRAP
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
)"},
    {"AccelerateSequences", ConfigDialect::kAccelerate, R"(
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
  parallelism_config_cp_size: 4
  parallelism_config_cp_comm_strategy: alltoall
)"},
    {"Transformers", ConfigDialect::kTransformers, R"({
  "output_dir": "steps",
  "bf16": true,
  "max_steps": 100,
  "per_device_train_batch_size": 4,
  "gradient_accumulation_steps": 2,
  "learning_rate": 3e-5,
  "weight_decay": 0.01,
  "max_grad_norm": 0.5,
  "seed": 7,
  "adam_beta2": 0.98,
  "lr_scheduler_type": "cosine_with_min_lr",
  "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
  "warmup_ratio": 0.05,
  "save_steps": 25,
  "save_total_limit": 3,
  "fsdp": true,
  "fsdp_config": {
    "version": 2,
    "reshard_after_forward": true,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
    "state_dict_type": "SHARDED_STATE_DICT",
    "cpu_ram_efficient_loading": true,
    "activation_checkpointing": true
  }
})"},
    {"TransformersBare", ConfigDialect::kTransformers,
     R"({"fsdp": true, "fsdp_config": {"version": 2}})"},
    {"TransformersCopies", ConfigDialect::kTransformers,
     R"({"output_dir": "steps", "bf16": true, "gradient_checkpointing": true,
         "activation_offloading": true})"},
    {"AccelerateCopies", ConfigDialect::kAccelerate,
     "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n"},
    {"Composer", ConfigDialect::kComposer, R"(
precision: amp_bf16
max_duration: 200ba
save_folder: steps
save_interval: 50ba
save_num_checkpoints_to_keep: 4
load_path: base.pt
load_weights_only: true
device_train_microbatch_size: 2
global_train_batch_size: 64
max_seq_len: 512
seed: 3
optimizer: {name: adamw, lr: 1.0e-4, weight_decay: 0.1, betas: [0.8, 0.9]}
scheduler: {name: cosine_with_warmup, t_warmup: 20ba, alpha_f: 0.1}
parallelism_config:
  fsdp2:
    reshard_after_forward: 4
    activation_checkpointing: true
    activation_cpu_offload: true
    mixed_precision: PURE
    load_monolith_rank0_only: true
  tp:
    tensor_parallel_degree: 2
)"},
    {"ComposerPlan", ConfigDialect::kComposer, R"(
precision: amp_bf16
parallelism_config:
  fsdp2: {}
  tp:
    tensor_parallel_degree: 2
    layer_plan:
      embed_tokens: {style: embedding_rowwise, output_layouts: shard(1)}
      'layers.*.self_attn.[qkv]_proj': colwise
      layers.*.self_attn.o_proj: {style: rowwise, output_layouts: shard(1)}
      layers.*.*_layernorm: {style: sequence_parallel, sequence_dim: 1}
      lm_head: {style: colwise_rep, use_local_output: true}
)"},
    {"ComposerOptimizerWithoutName", ConfigDialect::kComposer, R"(
precision: amp_bf16
optimizer: {lr: 3.0e-4, weight_decay: 1.0e-8}
parallelism_config:
  fsdp2: {}
)"},
    {"ComposerFsdp1", ConfigDialect::kComposer, R"(
precision: fp32
fsdp:
  sharding_strategy: NO_SHARD
  state_dict_type: sharded
)"},
    {"TorchTitan", ConfigDialect::kTorchTitan, R"(
[job]
dump_folder = "runs"
[optimizer]
lr = 3e-4
[lr_scheduler]
warmup_steps = 5
decay_ratio = 0.5
decay_type = "sqrt"
min_lr_factor = 0.25
[training]
steps = 50
local_batch_size = 2
global_batch_size = 32
seq_len = 1024
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "always"
[checkpoint]
enable = true
interval = 10
async_mode = "async"
keep_latest_k = 2
export_dtype = "bfloat16"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[debug]
seed = 1
)"},
    {"TorchTitanExperts", ConfigDialect::kTorchTitan, R"(
[training]
steps = 1000
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"
expert_parallel_degree = 8
expert_tensor_parallel_degree = 2
)"},
    {"TorchTitanBare", ConfigDialect::kTorchTitan,
     "[parallelism]\ndata_parallel_shard_degree = -1\n"},
};

// The differences in `b` that no finding reports.
class Differences {
 public:
  explicit Differences(const Findings& said) : said_(said) {}

  template <typename T>
  void Add(absl::string_view name, const Setting<T>& a, const Setting<T>& b) {
    if (a == b || IsSaid(name, SettingPlace(a, name))) return;
    list_.emplace_back(name);
  }

  std::vector<std::string> list() const { return list_; }

 private:
  // A finding may also name a setting's section, "loop".
  bool IsSaid(absl::string_view name, const SourceLocation& place) const {
    const absl::string_view part = name.substr(0, name.find('.'));
    return std::any_of(
        said_.list().begin(), said_.list().end(), [&](const Finding& finding) {
          return finding.place == place || finding.place.key == name ||
                 finding.place.key == part;
        });
  }

  const Findings& said_;
  std::vector<std::string> list_;
};

void AddSharding(const TrainConfig& a, const TrainConfig& b, Differences& d) {
#define ADD(field) d.Add(#field, a.field, b.field)
  ADD(mesh.data_parallel_replicate_degree);
  ADD(mesh.data_parallel_shard_degree);
  ADD(mesh.tensor_parallel_degree);
  ADD(mesh.parallelize_plan);
  ADD(mesh.context_parallel_degree);
  ADD(mesh.context_parallel_method);
  ADD(mesh.pipeline_parallel_degree);
  ADD(mesh.expert_parallel_degree);
  ADD(mesh.expert_tensor_parallel_degree);
  ADD(mesh.num_processes);
  ADD(precision.dtype);
  ADD(precision.param_dtype);
  ADD(precision.reduce_dtype);
  ADD(precision.output_dtype);
  ADD(precision.cast_forward_inputs);
  ADD(sharding.reshard_after_forward);
  ADD(sharding.cpu_offload);
  ADD(sharding.auto_wrap_policy);
  ADD(sharding.transformer_layer_cls_to_wrap);
  ADD(sharding.min_num_params);
  ADD(sharding.ignored_modules);
  ADD(sharding.activation_checkpointing);
  ADD(sharding.activation_cpu_offload);
}

void AddOthers(const TrainConfig& a, const TrainConfig& b, Differences& d) {
  ADD(checkpoint.state_dict_type);
  ADD(checkpoint.cpu_ram_efficient_loading);
  ADD(checkpoint.initial_load_path);
  ADD(checkpoint.folder);
  ADD(checkpoint.interval);
  ADD(checkpoint.async);
  ADD(checkpoint.keep_latest_k);
  ADD(checkpoint.last_save_model_only);
  ADD(checkpoint.export_dtype);
  ADD(loop.steps);
  ADD(loop.local_batch_size);
  ADD(loop.global_batch_size);
  ADD(loop.gradient_accumulation_steps);
  ADD(loop.seq_len);
  ADD(loop.seed);
  ADD(loop.max_norm);
  ADD(loop.lr);
  ADD(loop.weight_decay);
  ADD(loop.beta1);
  ADD(loop.beta2);
  ADD(loop.eps);
  ADD(loop.lr_schedule);
#undef ADD
}

std::vector<std::string> Problems(const Findings& findings) {
  std::vector<std::string> problems;
  for (const Finding& finding : findings.list()) {
    if (finding.kind == Finding::Kind::kProblem) {
      problems.push_back(to_string(finding));
    }
  }
  return problems;
}

// `config` written in `dialect` and read again; nothing if the dialect cannot
// express the mesh.
std::optional<TrainConfig> Through(const TrainConfig& config,
                                   ConfigDialect dialect) {
  Findings said;
  const std::string text = write_config(config, dialect, said);
  if (said.has_problems()) {
    EXPECT_THAT(Problems(said), Each(AnyOf(HasSubstr("has no option for it"),
                                           HasSubstr("requires a number"))));
    return std::nullopt;
  }
  const ReadConfig read = read_config_text(FileName(dialect), text);
  EXPECT_EQ(read.dialect, dialect) << text;
  EXPECT_THAT(Problems(read.findings), IsEmpty()) << text;
  Differences differences(said);
  AddSharding(config, read.config, differences);
  AddOthers(config, read.config, differences);
  EXPECT_THAT(differences.list(), IsEmpty())
      << "through " << dialect_name(dialect) << "\n"
      << text << "\nfindings:\n"
      << ::testing::PrintToString(TextsOf(said));
  return read.config;
}

class RoundTrip : public ::testing::TestWithParam<Source> {};

TEST_P(RoundTrip, KeepsEverySettingOrReportsIt) {
  const ReadConfig first =
      read_config_text(FileName(GetParam().dialect), GetParam().text);
  ASSERT_EQ(first.dialect, GetParam().dialect);
  ASSERT_THAT(Problems(first.findings), IsEmpty());
  for (const ConfigDialect dialect : kDialects) {
    SCOPED_TRACE(dialect_name(dialect));
    const std::optional<TrainConfig> there = Through(first.config, dialect);
    if (there.has_value()) Through(*there, GetParam().dialect);
    if (dialect == GetParam().dialect) EXPECT_TRUE(there.has_value());
  }
}

TEST(RoundTripOfAPlan, KeepsLongPatternsAsKeys) {
  TrainConfig config =
      read_config_text("run.yaml", "precision: fp32\nfsdp2: {}\n").config;
  dcp::ParallelPlan plan;
  // Each character has six in quotes.
  EXPECT_TRUE(plan.Add({.pattern = std::string(200, '\n')}).ok());
  EXPECT_TRUE(plan.Add({.pattern = "b\nc\""}).ok());
  config.mesh.parallelize_plan = plan;
  const std::optional<TrainConfig> read =
      Through(config, ConfigDialect::kComposer);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(same_training(config, *read));
}

// A written config stays the same when it is written again.
TEST_P(RoundTrip, SecondRoundTripChangesNothing) {
  const ReadConfig first =
      read_config_text(FileName(GetParam().dialect), GetParam().text);
  for (const ConfigDialect dialect : kDialects) {
    SCOPED_TRACE(dialect_name(dialect));
    const std::optional<TrainConfig> once = Through(first.config, dialect);
    if (!once.has_value()) continue;
    const std::optional<TrainConfig> twice = Through(*once, dialect);
    ASSERT_TRUE(twice.has_value());
    EXPECT_TRUE(same_training(*once, *twice));
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, RoundTrip, ::testing::ValuesIn(kSources),
                         [](const ::testing::TestParamInfo<Source>& instance) {
                           return std::string(instance.param.name);
                         });

}  // namespace
}  // namespace fsdp::config
