// SPDX-License-Identifier: Apache-2.0
// Reads Composer's parallelism_config, as YAML or as a Python dict, and the
// keys around it in Composer's and LLM Foundry's files. LLM Foundry's
// fsdp_config is the block for FSDP1.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/composer/composer.h"
#include "config/dialects/composer/trainer.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/fsdp1.h"
#include "config/dialects/fields/keys.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/dialects/fields/references.h"
#include "config/document/plan_node.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

using dcp::DType;
using Kind = Node::Kind;

// The map with the sharding options, wherever it is.
struct Block {
  const Node* node = nullptr;  // null: there is none
  bool is_fsdp2 = false;
  bool is_foundry = false;  // LLM Foundry's, which has other defaults
};

struct Candidate {
  const Node* node;
  bool is_fsdp2;
  bool is_foundry;
};

Block FindBlock(Section& root, Section& parallelism, Findings& findings) {
  Block block;
  for (const Candidate& candidate :
       {Candidate{parallelism.Find("fsdp2"), true, false},
        Candidate{parallelism.Find("fsdp"), false, false},
        Candidate{root.Find("fsdp2"), true, false},
        Candidate{root.Find("fsdp"), false, false},
        Candidate{root.Find("fsdp_config"), false, true}}) {
    if (candidate.node == nullptr) continue;
    if (block.node != nullptr) {
      findings.Problem(
          candidate.node->place,
          absl::StrCat("is given together with ", block.node->place.key,
                       ": keep only the one that says how to shard"));
      continue;
    }
    // Composer reads this option in an fsdp block as well, when FSDP_VERSION
    // is 2.
    block = {
        .node = candidate.node,
        .is_fsdp2 = candidate.is_fsdp2 ||
                    candidate.node->Find("reshard_after_forward") != nullptr,
        .is_foundry = candidate.is_foundry};
  }
  return block;
}

// The mesh before Composer 0.24: [shards], or [copies, shards]. For FSDP2 it is
// a Python object.
void ReadDeviceMesh(Section& block, bool is_fsdp2, MeshConfig& mesh) {
  const Node* node = block.Find("device_mesh");
  std::vector<int64_t> sizes;
  for (const Node& item : node == nullptr ? std::vector<Node>() : node->items) {
    sizes.push_back(AsInteger(item).value_or(0));
  }
  const bool are_sizes =
      !is_fsdp2 && (sizes.size() == 1 || sizes.size() == 2) &&
      std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; });
  if (!are_sizes) {
    block.Refuse("device_mesh", "",
                 "a mesh is an object of Python; write "
                 "data_parallel_shard_degree and "
                 "data_parallel_replicate_degree");
    return;
  }
  if (mesh.data_parallel_shard_degree.place().has_value() ||
      mesh.data_parallel_replicate_degree.place().has_value()) {
    block.findings().Problem(node->place,
                             "is given together with the degrees of data "
                             "parallelism; keep only these");
    return;
  }
  const int64_t copies = sizes.size() == 2 ? sizes[0] : 1;
  mesh.data_parallel_replicate_degree = Setting<int64_t>(copies, node->place);
  mesh.data_parallel_shard_degree = Setting<int64_t>(sizes.back(), node->place);
  block.findings().Changed(
      node->place,
      absl::StrCat("is read as data_parallel_replicate_degree: ", copies,
                   " and data_parallel_shard_degree: ", sizes.back(),
                   ", which Composer takes instead since 0.24"));
}

void ReadReshard(Section& section, Setting<ReshardSetting>& reshard) {
  const Node* node = section.Find("reshard_after_forward");
  if (node == nullptr) return;
  const std::optional<int64_t> ranks =
      node->kind == Kind::kInteger ? AsInteger(*node) : std::nullopt;
  if (ranks.has_value() && *ranks >= 1) {
    reshard = Setting<ReshardSetting>(ReshardSetting(*ranks), node->place);
    return;
  }
  const std::optional<bool> value = AsBool(*node);
  if (value.has_value() && node->kind != Kind::kInteger) {
    reshard = Setting<ReshardSetting>(ReshardSetting(*value), node->place);
    return;
  }
  section.findings().Problem(node->place,
                             "is not true, false or a number of ranks");
}

void ReadStrategy(Section& section, bool is_fsdp2, TrainConfig& config) {
  const Node* node = section.Find("sharding_strategy");
  if (node == nullptr) return;
  if (is_fsdp2) {
    section.Ignore("sharding_strategy",
                   "FSDP2 uses reshard_after_forward instead");
    return;
  }
  const ShardingStrategy* strategy =
      node->is_scalar() ? FindShardingStrategy(node->text) : nullptr;
  if (strategy == nullptr) {
    section.findings().Problem(
        node->place,
        "is not FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 "
        "or NO_SHARD");
    return;
  }
  ApplyShardingStrategy(*strategy, node->place, config, section.findings());
}

// A precision as Composer names it: "amp_bf16". `type` is unset for float32.
struct Precision {
  std::optional<DType> type = {};
  std::optional<SourceLocation> place = {};
  // Neither the file nor a default says it: it is an argument that the program
  // passes to the Trainer.
  bool is_unknown = false;
};

Precision ReadPrecision(Section& root, bool is_foundry) {
  const Choices<std::optional<DType>> kWords = {
      {"fp32", std::nullopt},
      {"amp_bf16", DType::kBFloat16},
      {"amp_fp16", DType::kFloat16},
      {"amp_fp8", DType::kFloat8E4M3FN}};
  Setting<std::optional<DType>> type;
  if (!root.Read("precision", kWords, type)) {
    if (is_foundry) return {.type = DType::kBFloat16};
    return {.is_unknown = root.node().Find("precision") == nullptr};
  }
  if (*type == DType::kFloat8E4M3FN) {
    root.findings().Problem(
        *type.place(),
        absl::StrCat("is amp_fp8, but ", WithoutFloat8("write amp_bf16")));
    return {};
  }
  return {.type = *type, .place = type.place()};
}

// Applies a word from mixed_precision to the precision.
void ApplyWord(absl::string_view word, const Precision& precision,
               const SourceLocation& place, PrecisionConfig& casts,
               Findings& findings) {
  const SourceLocation& of_type =
      precision.place.has_value() ? *precision.place : place;
  if (absl::EqualsIgnoreCase(word, "FULL")) {
    if (!precision.type.has_value()) return;
    findings.Changed(place,
                     "is read as no casts at all: torch.autocast, which "
                     "precision asks for, is not used");
    return;
  }
  if (!precision.type.has_value()) return;
  casts.param_dtype = Some(*precision.type, of_type);
  casts.reduce_dtype = absl::EqualsIgnoreCase(word, "PURE")
                           ? Some(*precision.type, of_type)
                           : Some(DType::kFloat32, of_type);
}

void ReadCast(Section& section, absl::string_view key,
              Setting<std::optional<DType>>& cast) {
  Setting<DType> type;
  if (section.Read(key, type)) cast = Some(*type, *type.place());
}

// mixed_precision is a map of types, or one of three words.
void ReadMixedPrecision(Section& block, bool is_fsdp2,
                        const Precision& precision, PrecisionConfig& casts) {
  const Node* node = block.Find("mixed_precision");
  if (node != nullptr && node->kind == Kind::kMap) {
    Section section(*node, block.findings());
    ReadCast(section, "param_dtype", casts.param_dtype);
    // FSDP1 reduces gradients as it gathers parameters.
    if (!is_fsdp2) casts.reduce_dtype = casts.param_dtype;
    ReadCast(section, "reduce_dtype", casts.reduce_dtype);
    ReadRemoved("", section);
    section.Finish();
    return;
  }
  if (precision.is_unknown) {
    block.findings().Changed(
        block.node().place,
        "has no precision next to it, and is read without casts; write "
        "precision: amp_bf16, fp32 or amp_fp16");
  }
  const Choices<std::string> kWords = {
      {"DEFAULT", "DEFAULT"}, {"PURE", "PURE"}, {"FULL", "FULL"}};
  Setting<std::string> word = std::string("DEFAULT");
  block.Read("mixed_precision", kWords, word);
  ApplyWord(*word, precision, word.place().value_or(block.node().place), casts,
            block.findings());
}

void ReadActivations(Section& block, ShardingConfig& sharding) {
  Setting<bool> recompute = false;
  if (block.Read("activation_checkpointing", recompute)) {
    sharding.activation_checkpointing =
        Setting<int64_t>(*recompute ? 1 : 0, *recompute.place());
  }
  block.Read("activation_cpu_offload", sharding.activation_cpu_offload);
}

void ReadBlock(Section block, bool is_fsdp2, const Precision& precision,
               TrainConfig& config) {
  ReadDegree(block, "data_parallel_replicate_degree", kReplicateOverRest,
             config.mesh.data_parallel_replicate_degree);
  ReadDegree(block, "data_parallel_shard_degree", kShardOverRest,
             config.mesh.data_parallel_shard_degree);
  ReadDeviceMesh(block, is_fsdp2, config.mesh);
  ReadReshard(block, config.sharding.reshard_after_forward);
  ReadStrategy(block, is_fsdp2, config);
  ReadMixedPrecision(block, is_fsdp2, precision, config.precision);
  block.Read("cpu_offload", config.sharding.cpu_offload);
  ReadActivations(block, config.sharding);
  block.Refuse("ignored_modules", "",
               "modules are objects of Python; a program passes "
               "FullyShardOptions::ignored_params");
  const Choices<StateDictType> kTypes = {
      {"full", StateDictType::kFullStateDict},
      {"sharded", StateDictType::kShardedStateDict}};
  block.Read("state_dict_type", kTypes, config.checkpoint.state_dict_type);
  block.Read("load_monolith_rank0_only",
             config.checkpoint.cpu_ram_efficient_loading);
  block.Ignore("load_planner", "loads are planned from the checkpoint");
  block.Ignore("save_planner", "saves are planned from the state");
  block.Find("sharded_ckpt_prefix_dir");
  block.Find("verbose");
  ReadRemoved("", block);
  block.Finish();
}

void ReadTensorParallel(const Node& node, MeshConfig& mesh,
                        Findings& findings) {
  Section section(node, findings);
  section.Read("tensor_parallel_degree", {.least = 1},
               mesh.tensor_parallel_degree);
  const Node* plan = section.Find("layer_plan");
  if (plan != nullptr && plan->kind == Kind::kMap) {
    mesh.parallelize_plan = Setting<dcp::ParallelPlan>(
        read_parallel_plan(*plan, findings), plan->place);
  } else {
    section.Ignore("layer_plan",
                   "it is an object of Python; write a map of modules to "
                   "styles, or give PrepareOptions::parallelize_plan");
  }
  section.Ignore("strategy",
                 "it names a function of LLM Foundry; write layer_plan, or "
                 "give PrepareOptions::parallelize_plan");
  section.Refuse("device_mesh", "",
                 "a mesh is an object of Python; write tensor_parallel_degree");
  section.Finish();
}

void RefuseOtherPrograms(Section& root) {
  root.Refuse("deepspeed_config", "", "write parallelism_config instead");
  const Node* device = root.Find("device");
  if (device != nullptr && absl::EqualsIgnoreCase(device->text, "tpu")) {
    root.Refuse("device", "gpu", "devices are cpu and gpu");
  }
  root.Ignore("compile_config", "modules run as they are");
  root.Find("models");  // for an evaluation; not a misspelt model
}

void SetDefaults(const Block& block, TrainConfig& config) {
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kDirectChildren;
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.fsdp_version =
      block.node == nullptr
          ? Setting<int64_t>(2)
          : Setting<int64_t>(block.is_fsdp2 ? 2 : 1, block.node->place);
  config.checkpoint.state_dict_type = block.is_fsdp2
                                          ? StateDictType::kShardedStateDict
                                          : StateDictType::kFullStateDict;
  if (block.is_foundry) config.loop.seed = std::optional<int64_t>(17);
}

// LLM Foundry does not cast if weights already have 16 bits.
void FinishPrecision(const Block& block, PrecisionConfig& precision) {
  const Node* words =
      block.node == nullptr ? nullptr : block.node->Find("mixed_precision");
  if (block.is_foundry && *precision.dtype != DType::kFloat32 &&
      (words == nullptr || words->kind != Kind::kMap)) {
    precision.param_dtype = {};
    precision.reduce_dtype = {};
  }
  DropRedundantCasts(precision);
}

}  // namespace

void ReadComposer(const Node& root_node, TrainConfig& config,
                  Findings& findings) {
  const Node resolved = ResolveReferences(root_node);
  Section root(resolved, findings);
  const Node none;
  const Node* parallelism_node = root.Find("parallelism_config");
  Section parallelism(parallelism_node == nullptr ? none : *parallelism_node,
                      findings);
  const Block block = FindBlock(root, parallelism, findings);
  SetDefaults(block, config);
  const Precision precision = ReadPrecision(root, block.is_foundry);
  if (block.node == nullptr) {
    const Node& place =
        parallelism_node == nullptr ? resolved : *parallelism_node;
    ReadAsCopies(place.place, "has neither fsdp2 nor fsdp, and is", config.mesh,
                 findings);
    CastCopies(precision.type, precision.place.value_or(place.place),
               config.precision);
  } else {
    if (absl::EndsWith(block.node->place.key, "parallelism_config.fsdp2")) {
      findings.Changed(block.node->place,
                       "is read as a block for FSDP2; Composer's Trainer takes "
                       "one from a map only under the name fsdp, and with "
                       "FSDP_VERSION=2 in its environment");
    }
    ReadBlock(Section(*block.node, findings), block.is_fsdp2, precision,
              config);
  }
  ReadComposerLoop(root, config);
  for (const Node* tensor_parallel :
       {parallelism.Find("tp"), root.Find({"tp", "tp_config"})}) {
    if (tensor_parallel == nullptr) continue;
    ReadTensorParallel(*tensor_parallel, config.mesh, findings);
  }
  parallelism.Finish();
  FinishPrecision(block, config.precision);
  ReadComposerSaves(root, block.is_foundry, config.checkpoint);
  ReadComposerLoads(root, config.checkpoint);
  RefuseOtherPrograms(root);
  root.FinishLenient("they are not about sharding, or belong to the program");
}

}  // namespace fsdp::config
