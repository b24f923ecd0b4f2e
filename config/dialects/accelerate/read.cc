// SPDX-License-Identifier: Apache-2.0
// Reads accelerate's config file (ClusterConfig), which `accelerate config`
// writes and `accelerate launch` reads.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/dialects/accelerate/accelerate.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/fsdp_options.h"
#include "config/dialects/fields/mesh_sizes.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

// The defaults of `accelerate launch`, from the plugin and from the command
// line, for keys that a file lacks.
void SetAccelerateDefaults(TrainConfig& config) {
  config = TrainConfig();
  config.sharding.fsdp_version = 1;
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
  config.checkpoint.cpu_ram_efficient_loading = true;
}

// accelerate's types that train copies of the model, on any device.
constexpr absl::string_view kCopying[] = {
    "NO",         "MULTI_CPU", "MULTI_GPU",    "MULTI_HPU",  "MULTI_MLU",
    "MULTI_MUSA", "MULTI_NPU", "MULTI_NEURON", "MULTI_SDAA", "MULTI_XPU"};

bool IsCopying(absl::string_view type) {
  return std::any_of(std::begin(kCopying), std::end(kCopying),
                     [&](absl::string_view known) {
                       return absl::EqualsIgnoreCase(type, known);
                     });
}

// Returns false if the model is copied instead of sharded.
bool ReadDistributedType(Section& root, MeshConfig& mesh) {
  const Node* type = root.Find("distributed_type");
  Findings& findings = root.findings();
  if (type == nullptr) {
    if (root.Find("fsdp_config") == nullptr) {
      findings.Problem(root.node().place,
                       "has no distributed_type, which accelerate requires; "
                       "write distributed_type: FSDP, or MULTI_GPU for copies "
                       "of the model");
    }
    return true;
  }
  if (IsCopying(type->text)) {
    ReadAsCopies(type->place, absl::StrCat("is ", type->text, ", and is"), mesh,
                 findings);
    return false;
  }
  constexpr absl::string_view kEngines[][2] = {
      {"DEEPSPEED", "there is no DeepSpeed here"},
      {"MEGATRON_LM", "there is no Megatron-LM here"},
      {"XLA", "there are no TPUs here"},
      {"TPU", "there are no TPUs here"},
  };
  for (const auto& [engine, why] : kEngines) {
    if (!absl::EqualsIgnoreCase(type->text, engine)) continue;
    root.Refuse("distributed_type", "FSDP", absl::StrCat(why, "; write FSDP"));
    return true;
  }
  const Choices<bool> kTypes = {{"FSDP", true}, {"MULTI_GPU", false}};
  Setting<bool> unused;
  root.Read("distributed_type", kTypes, unused);
  return true;
}

// accelerate reads a file's sharding options only for FSDP.
void IgnoreSharding(Section& root, TrainConfig& config) {
  config.checkpoint.cpu_ram_efficient_loading = false;
  const Node* options = root.Find("fsdp_config");
  if (options != nullptr && !options->entries.empty()) {
    root.Ignore("fsdp_config", "distributed_type is not FSDP");
  }
  const Setting<int64_t>& shard = config.mesh.data_parallel_shard_degree;
  if (*shard == 1) return;
  root.findings().Problem(
      *shard.place(),
      absl::StrCat("is ", *shard,
                   ", but only distributed_type: FSDP makes shards"));
}

void RefuseOthers(Section& root) {
  root.Refuse("deepspeed_config", "", "there is no DeepSpeed here");
  root.Refuse("megatron_lm_config", "", "there is no Megatron-LM here");
  constexpr absl::string_view kNoTpu = "there are no TPUs here";
  RefuseTrue("tpu_use_cluster", kNoTpu, root);
  RefuseTrue("tpu_use_sudo", kNoTpu, root);
  RefuseTrue("downcast_bf16", kNoTpu, root);
}

// The backend's name, or "" if there is none.
std::string DynamoBackend(const Node& node) {
  if (node.kind != Node::Kind::kMap) return node.text;
  const Node* backend = node.Find("dynamo_backend");
  if (backend == nullptr) backend = node.Find("backend");
  return backend == nullptr ? "" : backend->text;
}

void ReadCompilation(Section& root) {
  for (const absl::string_view key : {"dynamo_config", "dynamo_backend"}) {
    const Node* node = root.Find(key);
    if (node == nullptr) continue;
    const std::string backend = DynamoBackend(*node);
    if (backend.empty() || absl::EqualsIgnoreCase(backend, "no")) continue;
    root.findings().Ignored(node->place,
                            "has no effect: models run as they are written");
  }
}

// Keys that decide how processes are started; one finding names all that are
// present.
void IgnoreLaunching(Section& root) {
  std::vector<std::string> names;
  std::optional<SourceLocation> first;
  for (const absl::string_view key : {"command_file",
                                      "commands",
                                      "compute_environment",
                                      "debug",
                                      "enable_cpu_affinity",
                                      "fp8_config",
                                      "gpu_ids",
                                      "machine_rank",
                                      "main_process_ip",
                                      "main_process_port",
                                      "main_training_function",
                                      "mpirun_config",
                                      "num_machines",
                                      "rdzv_backend",
                                      "rdzv_conf",
                                      "same_network",
                                      "tpu_env",
                                      "tpu_name",
                                      "tpu_vm",
                                      "tpu_zone",
                                      "use_cpu"}) {
    const Node* node = root.Find(key);
    if (node == nullptr || key == "num_machines") continue;
    if (!node->is_scalar() && node->items.empty() && node->entries.empty()) {
      continue;
    }
    if (!first.has_value()) {
      first = node->place;
    } else {
      names.emplace_back(key);
    }
  }
  if (!first.has_value()) return;
  const std::string others =
      names.empty()
          ? ""
          : absl::StrCat(" (so are ", absl::StrJoin(names, ", "), ")");
  root.findings().Ignored(*first,
                          absl::StrCat("is for accelerate launch", others,
                                       ": processes are started by another "
                                       "program here, on its device"));
}

void IgnoreSageMaker(Section& root) {
  for (const absl::string_view key :
       {"additional_args", "base_job_name", "ec2_instance_type",
        "iam_role_name", "image_uri", "profile", "py_version",
        "pytorch_version", "region", "sagemaker_inputs_file",
        "sagemaker_metrics_file", "transformers_version"}) {
    const Node* node = root.Find(key);
    if (node != nullptr && key == "ec2_instance_type") {
      root.findings().Ignored(node->place,
                              "is for SageMaker, and so are the keys about "
                              "its jobs: nothing is started there");
    }
  }
}

void ReadOffloads(Section& section, TrainConfig& config) {
  ShardingConfig& sharding = config.sharding;
  section.Read(OptionKey("offload_params", section), sharding.cpu_offload);
  Setting<bool>& activations = sharding.activation_cpu_offload;
  const std::string key =
      OptionKey("activation_checkpointing_offload", section);
  if (!section.Read(key, activations) || !*activations) return;
  if (*sharding.fsdp_version == 2 && *sharding.activation_checkpointing > 0) {
    return;
  }
  section.findings().Problem(
      activations.place().value_or(SourceLocation{}),
      "is true, for which accelerate requires fsdp_version: 2 and "
      "fsdp_activation_checkpointing: true");
}

// accelerate's launcher requires both or neither: rank 0 reads the weights, and
// the others get them from it.
void RefuseUnequalRanks(Section& section, const CheckpointConfig& checkpoint) {
  const Node* sync = section.Find(OptionKey("sync_module_states", section));
  if (sync == nullptr || AsBool(*sync) != false ||
      !*checkpoint.cpu_ram_efficient_loading) {
    return;
  }
  section.findings().Problem(
      sync->place,
      "is false, which accelerate refuses with fsdp_cpu_ram_efficient_loading, "
      "its default; write false for that as well");
}

// Reads the keys for where processes are started, which accelerate checks.
void CheckLaunching(Section& root) {
  Setting<bool> place;
  root.Read("compute_environment",
            Choices<bool>{{"LOCAL_MACHINE", true}, {"AMAZON_SAGEMAKER", true}},
            place);
  Setting<int64_t> machines;
  root.Read("num_machines", IntegerRange{.least = 1}, machines);
}

// FSDP1 makes one copy on each machine. The file gives the number of machines;
// without it accelerate starts one.
void ResolveHybrid(const Node* num_machines, TrainConfig& config) {
  MeshConfig& mesh = config.mesh;
  if (*mesh.data_parallel_shard_degree != kShardWithinNode) return;
  const std::optional<int64_t> machines =
      num_machines == nullptr ? 1 : AsInteger(*num_machines);
  const SourceLocation place =
      mesh.data_parallel_shard_degree.place().value_or(SourceLocation{});
  if (machines == 1) {
    mesh.data_parallel_shard_degree = Setting<int64_t>(kShardOverRest, place);
    return;
  }
  const int64_t ranks = *mesh.num_processes / *mesh.tensor_parallel_degree /
                        *mesh.context_parallel_degree;
  if (!machines.has_value() || *machines < 1 || ranks <= 0 ||
      ranks % *machines != 0) {
    return;
  }
  mesh.data_parallel_replicate_degree =
      Setting<int64_t>(*machines, num_machines->place);
  mesh.data_parallel_shard_degree = Setting<int64_t>(ranks / *machines, place);
}

// `accelerate launch` takes this map's keys only with their prefix.
void SayMissingPrefixes(const Node& parallelism, Findings& findings) {
  constexpr absl::string_view kPrefix = "parallelism_config_";
  for (const auto& [key, value] : parallelism.entries) {
    if (absl::StartsWith(key, kPrefix)) continue;
    findings.Changed(value.place,
                     absl::StrCat("is read as ", kPrefix, key,
                                  "; accelerate itself passes over it "
                                  "without that prefix"));
  }
}

void ReadProcesses(Section& root, TrainConfig& config) {
  Setting<int64_t> ranks;
  if (!root.Read("num_processes", IntegerRange{.least = -1}, ranks)) return;
  // -1: the program that starts the processes decides.
  if (*ranks > 0) config.mesh.num_processes = ranks;
}

// Also reads `fp16: true`, from files written in 2021.
void ReadMixedPrecision(Section& root, bool is_sharded, TrainConfig& config) {
  ReadMixedPrecision("mixed_precision", root, config);
  Setting<bool> fp16;
  if (root.Read("fp16", fp16) && *fp16 &&
      root.Find("mixed_precision") == nullptr) {
    SetMixedPrecision(dcp::DType::kFloat16,
                      fp16.place().value_or(SourceLocation{}), config);
  }
  const Setting<std::optional<dcp::DType>> type = config.precision.param_dtype;
  if (!is_sharded) {
    CastCopies(*type, type.place().value_or(SourceLocation{}),
               config.precision);
  }
}

}  // namespace

void ReadAccelerate(const Node& root_node, TrainConfig& config,
                    Findings& findings) {
  SetAccelerateDefaults(config);
  Section root(root_node, findings);
  const bool is_sharded = ReadDistributedType(root, config.mesh);
  RefuseOthers(root);
  ReadProcesses(root, config);
  ReadMixedPrecision(root, is_sharded, config);
  ReadCompilation(root);
  // The degrees come first because a strategy's meaning depends on them.
  bool has_mesh = false;
  if (const Node* node = root.Find("parallelism_config"); node != nullptr) {
    Section parallelism(*node, findings);
    has_mesh = ReadParallelismOptions(parallelism, config.mesh);
    SayMissingPrefixes(*node, findings);
    parallelism.Finish();
  }
  const Node* node = root.Find("fsdp_config");
  if (!is_sharded) {
    IgnoreSharding(root, config);
  } else if (node != nullptr) {
    Section options(*node, findings);
    ReadFsdpOptions(options, config);
    ReadOffloads(options, config);
    RefuseUnequalRanks(options, config.checkpoint);
    options.Finish();
  }
  if (!config.checkpoint.state_dict_type.place().has_value()) {
    config.checkpoint.state_dict_type = *config.sharding.fsdp_version == 1
                                            ? StateDictType::kFullStateDict
                                            : StateDictType::kShardedStateDict;
  }
  if (has_mesh) CheckMeshSizes(is_sharded, config, findings);
  CheckLaunching(root);
  ResolveHybrid(root.Find("num_machines"), config);
  IgnoreLaunching(root);
  IgnoreSageMaker(root);
  root.Finish();
}

}  // namespace fsdp::config
