// SPDX-License-Identifier: Apache-2.0

#include "tools/fsdp_config/render.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "config/dialect_table.h"
#include "config/document/plan_node.h"
#include "dcp/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "tools/fsdp_config/mesh_text.h"
#include "tools/terminal/quantity.h"

namespace fsdp::tools {
namespace {

using Json = nlohmann::ordered_json;
using dcp::tools::FormatBytes;
using dcp::tools::FormatCount;
using dcp::tools::FormatPlural;

constexpr Finding::Kind kKinds[] = {
    Finding::Kind::kProblem, Finding::Kind::kChanged, Finding::Kind::kIgnored};

absl::string_view KindName(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kProblem:
      return "problem";
    case Finding::Kind::kChanged:
      return "changed";
    case Finding::Kind::kIgnored:
      return "ignored";
  }
  return "";
}

constexpr absl::string_view kPlain = "\033[0m";

absl::string_view KindColor(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kProblem:
      return "\033[1;31m";  // bold red
    case Finding::Kind::kChanged:
      return "\033[1;33m";  // bold yellow
    case Finding::Kind::kIgnored:
      return "\033[36m";  // cyan
  }
  return "";
}

// The source line for a place, with a mark below the column; empty if the place
// has no line, or the line is not safe for a terminal.
std::string Excerpt(absl::string_view text, const SourceLocation& place) {
  constexpr size_t kMaxShownBytes = 160;
  if (place.line <= 0) return "";
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (static_cast<size_t>(place.line) > lines.size()) return "";
  absl::string_view line = lines[static_cast<size_t>(place.line) - 1];
  line = absl::StripSuffix(line, "\r");
  if (line.empty() || line.size() > kMaxShownBytes) return "";
  std::string shown(line);
  for (char& c : shown) {
    if (c == '\t') c = ' ';
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return "";
  }
  std::string excerpt = absl::StrFormat("  %5d | %s\n", place.line, shown);
  const auto column = static_cast<size_t>(std::max(place.column, 0));
  if (column >= 1 && column <= line.size() + 1) {
    absl::StrAppend(&excerpt, "        | ", std::string(column - 1, ' '),
                    "^\n");
  }
  return excerpt;
}

std::string Dump(const Json& json) {
  return absl::StrCat(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                      "\n");
}

std::string StageText(const TrainConfig& config,
                      const Explanation& explanation) {
  const ReshardSetting& reshard = *config.sharding.reshard_after_forward;
  std::string text = absl::StrCat("ZeRO stage ", explanation.zero_stage, ": ");
  if (explanation.zero_stage == 0) {
    return absl::StrCat(text, "nothing is sharded\n");
  }
  text += "parameters, gradients and optimizer state are sharded;\n  ";
  if (explanation.zero_stage == 2) {
    return absl::StrCat(text,
                        "parameters stay gathered from forward until backward "
                        "is done\n");
  }
  text +=
      "parameters are gathered for a group and freed after it, in forward "
      "and backward\n";
  if (const int64_t* degree = std::get_if<int64_t>(&reshard)) {
    absl::StrAppend(&text, "  (after forward resharded to groups of ", *degree,
                    ", from which backward gathers: DeepSpeed's hpZ)\n");
  } else if (std::holds_alternative<std::monostate>(reshard)) {
    text += "  (the root's own stay, because backward needs them at once)\n";
  }
  return text;
}

std::string PrecisionText(const PrecisionConfig& precision) {
  return absl::StrCat(
      "Precision: shards and optimizer in ", dcp::TorchName(*precision.dtype),
      ", computes in ", dcp::TorchName(precision.computes_in()),
      ", reduces gradients in ", dcp::TorchName(precision.reduces_in()),
      precision.reduce_dtype->has_value()
          ? "\n  (the config says so)\n"
          : "\n  (no reduce_dtype: as the shards, the rule of PyTorch 2.15)\n");
}

std::string WrapText(const ShardingConfig& sharding) {
  switch (*sharding.auto_wrap_policy) {
    case AutoWrapPolicy::kTransformerBasedWrap:
      return absl::StrCat(
          "Groups: each ",
          sharding.transformer_layer_cls_to_wrap->empty()
              ? "layer of the model"
              : absl::StrJoin(*sharding.transformer_layer_cls_to_wrap,
                              " and each "),
          ", then the rest\n");
    case AutoWrapPolicy::kSizeBasedWrap:
      return absl::StrCat(
          "Groups: modules once they hold ",
          FormatCount(static_cast<uint64_t>(*sharding.min_num_params)),
          " elements, then the rest\n");
    case AutoWrapPolicy::kNoWrap:
      return "Groups: one, the whole model: all of it is gathered at once\n";
    case AutoWrapPolicy::kDirectChildren:
      return "Groups: each child of the model, then the rest\n";
  }
  return "";
}

std::string OtherText(const TrainConfig& config) {
  std::string text = LayersText(config.mesh);
  const int64_t every = *config.sharding.activation_checkpointing;
  if (every > 0) {
    absl::StrAppend(
        &text, "Activation checkpointing: ",
        every == 1 ? "each layer" : absl::StrCat("one layer of ", every),
        " is computed again in backward\n");
  }
  if (*config.sharding.activation_cpu_offload) {
    text +=
        "Activation offload: activations wait for backward in the memory of "
        "the host\n";
  }
  if (*config.sharding.cpu_offload) {
    text +=
        "CPU offload: shards, gradients and optimizer state are in the "
        "memory of the host\n";
  }
  if (!config.sharding.ignored_modules->empty()) {
    absl::StrAppend(&text, "Not sharded: modules named ",
                    *config.sharding.ignored_modules, "\n");
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.initial_load_path->empty()) {
    absl::StrAppend(&text, "Begins with: ", *checkpoint.initial_load_path,
                    *checkpoint.cpu_ram_efficient_loading
                        ? ", which rank 0 reads and sends"
                        : ", of which each rank reads its part",
                    "\n");
  }
  if (!checkpoint.folder->empty()) {
    absl::StrAppend(
        &text, "Checkpoints: in ", *checkpoint.folder,
        *checkpoint.interval > 0
            ? absl::StrCat(", every ", *checkpoint.interval, " steps")
            : ", after the last step",
        *checkpoint.async ? ", while training goes on" : "",
        *checkpoint.keep_latest_k > 0
            ? absl::StrCat(", the newest ", *checkpoint.keep_latest_k)
            : "",
        "\n");
  }
  if (*checkpoint.state_dict_type == StateDictType::kFullStateDict) {
    text +=
        "State dict: full: steps are saved sharded, and the whole model as "
        "one file in the end\n";
  }
  return text;
}

uint64_t NumElements(const GroupPlan& group) {
  uint64_t sum = 0;
  for (const ParameterShape& parameter : group.parameters) {
    uint64_t numel = 1;
    for (const int64_t size : parameter.sizes) {
      numel *= static_cast<uint64_t>(size);
    }
    sum += numel;
  }
  return sum;
}

// Puts neighbours of the same size on one line: "model.layers.0 to
// model.layers.31".
std::string GroupsText(const std::vector<GroupPlan>& groups) {
  std::string text;
  for (size_t first = 0; first < groups.size();) {
    const uint64_t numel = NumElements(groups[first]);
    size_t end = first + 1;
    while (end + 1 < groups.size() && NumElements(groups[end]) == numel) ++end;
    const bool is_root = first + 1 == groups.size();
    const std::string name =
        is_root ? "the rest"
        : end == first + 1
            ? groups[first].name
            : absl::StrCat(groups[first].name, " to ", groups[end - 1].name);
    absl::StrAppend(&text, "  ", name, ": ", FormatCount(numel), " elements",
                    end - first > 1 ? " each" : "", "\n");
    first = end;
  }
  return text;
}

Json NameJson(std::optional<ConfigDialect> dialect) {
  if (!dialect.has_value()) return nullptr;
  return std::string(dialect_name(*dialect));
}

Json ListJson(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings.list()) {
    list.push_back({{"kind", std::string(KindName(finding.kind))},
                    {"file", finding.place.file},
                    {"line", finding.place.line},
                    {"column", finding.place.column},
                    {"key", finding.place.key},
                    {"text", finding.text}});
  }
  return list;
}

absl::string_view WrapName(AutoWrapPolicy policy) {
  switch (policy) {
    case AutoWrapPolicy::kTransformerBasedWrap:
      return "TRANSFORMER_BASED_WRAP";
    case AutoWrapPolicy::kSizeBasedWrap:
      return "SIZE_BASED_WRAP";
    case AutoWrapPolicy::kNoWrap:
      return "NO_WRAP";
    case AutoWrapPolicy::kDirectChildren:
      return "DIRECT_CHILDREN";
  }
  return "";
}

Json ReshardJson(const ReshardSetting& reshard) {
  if (const bool* value = std::get_if<bool>(&reshard)) return *value;
  if (const int64_t* ranks = std::get_if<int64_t>(&reshard)) return *ranks;
  return nullptr;
}

Json PlanJson(const dcp::ParallelPlan& plan) {
  Json json = Json::object();
  for (const dcp::ParallelPlan::Entry& entry : plan.entries()) {
    json[entry.pattern] = style_text(entry.style);
  }
  return json;
}

// The config's part of RenderExplanation, apart from mesh and memory.
void AddConfig(const TrainConfig& config, Json& json) {
  const PrecisionConfig& precision = config.precision;
  const auto name = [](dcp::DType type) {
    return std::string(dcp::TorchName(type));
  };
  json["precision"] = {
      {"dtype", name(*precision.dtype)},
      {"param_dtype", name(precision.computes_in())},
      {"reduce_dtype", name(precision.reduces_in())},
      {"reduce_dtype_rule",
       precision.reduce_dtype->has_value() ? "config" : "shards"}};
  json["context_parallel_method"] = *config.mesh.context_parallel_method;
  json["parallelize_plan"] = PlanJson(*config.mesh.parallelize_plan);
  const ShardingConfig& sharding = config.sharding;
  json["reshard_after_forward"] = ReshardJson(*sharding.reshard_after_forward);
  json["auto_wrap_policy"] = std::string(WrapName(*sharding.auto_wrap_policy));
  json["transformer_layer_cls_to_wrap"] =
      *sharding.transformer_layer_cls_to_wrap;
  json["ignored_modules"] = *sharding.ignored_modules;
  const CheckpointConfig& checkpoint = config.checkpoint;
  json["checkpoint"] = {
      {"folder", *checkpoint.folder},
      {"interval", *checkpoint.interval},
      {"async", *checkpoint.async},
      {"keep_latest_k", *checkpoint.keep_latest_k},
      {"initial_load_path", *checkpoint.initial_load_path},
      {"cpu_ram_efficient_loading", *checkpoint.cpu_ram_efficient_loading},
      {"state_dict_type",
       *checkpoint.state_dict_type == StateDictType::kFullStateDict
           ? "FULL_STATE_DICT"
           : "SHARDED_STATE_DICT"}};
}

using Row = std::pair<const char*, uint64_t>;

std::vector<Row> MemoryRows(const MemoryPlan& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer_state", memory.optimizer_state},
          {"gathered", memory.gathered},
          {"unreduced", memory.unreduced},
          {"activations", memory.activations},
          {"activations_on_host", memory.activations_on_host}};
}

std::string MemoryText(const TrainConfig& config,
                       const Explanation& explanation) {
  const MemoryPlan& memory = explanation.memory;
  const bool offloads = *config.sharding.cpu_offload;
  const bool offloads_activations = *config.sharding.activation_cpu_offload;
  const std::string where = offloads ? " (host)" : "";
  std::string text =
      absl::StrCat("Memory of a rank, of a model of ",
                   FormatCount(explanation.num_elements), " elements:\n");
  std::vector<std::pair<std::string, uint64_t>> rows = {
      {absl::StrCat("shards of parameters", where), memory.parameters},
      {absl::StrCat("their gradients", where), memory.gradients},
      {absl::StrCat("AdamW's two moments", where), memory.optimizer_state},
      {"gathered parameters, at most", memory.gathered},
      {"gradients under way, at most", memory.unreduced},
      {"activations, at most", memory.activations}};
  constexpr size_t kNumShards = 3;
  const size_t num_on_device = rows.size();
  if (offloads_activations) {
    rows.emplace_back("activations (host), at most",
                      memory.activations_on_host);
  }
  uint64_t device = 0;
  uint64_t host = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_on_host = (offloads && i < kNumShards) || i >= num_on_device;
    (is_on_host ? host : device) += rows[i].second;
    absl::StrAppendFormat(&text, "  %-36s%10s\n", rows[i].first,
                          FormatBytes(rows[i].second));
  }
  const bool uses_host = offloads || offloads_activations;
  absl::StrAppendFormat(
      &text, "  %-36s%10s\n",
      uses_host ? "all on the device, at most" : "all, at most",
      FormatBytes(device));
  if (uses_host) {
    absl::StrAppendFormat(
        &text, "  %-36s%10s\n",
        offloads_activations ? "all on the host, at most" : "all on the host",
        FormatBytes(host));
  }
  absl::StrAppend(
      &text, "  Activations are those of ",
      FormatPlural(static_cast<uint64_t>(explanation.local_batch_size),
                   "sequence"),
      " of ", FormatCount(static_cast<uint64_t>(explanation.seq_len)),
      " tokens, with attention\n  that keeps no scores; all numbers leave out "
      "memory that the allocator wastes.\n");
  const MeshPlan& mesh = explanation.mesh;
  if (mesh.tensor_parallel * mesh.pipeline_parallel * mesh.expert_parallel >
      1) {
    text +=
        "  Tensor, pipeline and expert parallelism are not taken into account; "
        "a rank has\n  less with them.\n";
  }
  return text;
}

}  // namespace

std::string RenderFindings(const Findings& findings, const Sources& sources,
                           bool color) {
  // A file's findings are in line order.
  std::vector<Finding> sorted = findings.list();
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Finding& a, const Finding& b) {
                     return a.place.line < b.place.line;
                   });
  std::string text;
  for (const Finding::Kind kind : kKinds) {
    for (const Finding& finding : sorted) {
      if (finding.kind != kind) continue;
      absl::StrAppend(&text, color ? KindColor(kind) : "", KindName(kind),
                      color ? kPlain : "", ": ", to_string(finding), "\n");
      const auto source = sources.find(finding.place.file);
      if (source != sources.end()) {
        absl::StrAppend(&text, Excerpt(source->second, finding.place));
      }
    }
  }
  return text;
}

std::string RenderCounts(const Findings& findings) {
  uint64_t counts[std::size(kKinds)] = {};
  for (const Finding& finding : findings.list()) {
    ++counts[static_cast<size_t>(finding.kind)];
  }
  std::vector<std::string> parts;
  if (counts[0] > 0) parts.push_back(FormatPlural(counts[0], "problem"));
  if (counts[1] > 0) parts.push_back(FormatPlural(counts[1], "change"));
  if (counts[2] > 0) {
    parts.push_back(absl::StrCat(FormatCount(counts[2]), " without effect"));
  }
  return parts.empty() ? "nothing to report" : absl::StrJoin(parts, ", ");
}

std::string FindingsJson(std::optional<ConfigDialect> dialect,
                         const Findings& findings) {
  return Dump(
      {{"dialect", NameJson(dialect)}, {"findings", ListJson(findings)}});
}

std::string WrittenJson(std::optional<ConfigDialect> dialect,
                        const Findings& findings, absl::string_view text,
                        absl::string_view output_file) {
  Json json = {{"dialect", NameJson(dialect)},
               {"findings", ListJson(findings)}};
  if (output_file.empty()) {
    json["text"] = std::string(text);
  } else {
    json["output_file"] = std::string(output_file);
  }
  return Dump(json);
}

std::string RenderExplanation(const TrainConfig& config,
                              const Explanation& explanation) {
  std::string text = absl::StrCat(
      MeshText(config.mesh, explanation.mesh), StageText(config, explanation),
      PrecisionText(config.precision), WrapText(config.sharding));
  absl::StrAppend(&text, GroupsText(explanation.groups), OtherText(config));
  if (explanation.groups.empty()) {
    absl::StrAppend(&text,
                    "Memory: give --model a checkpoint of the model to see "
                    "groups and memory\n");
  } else {
    absl::StrAppend(&text, MemoryText(config, explanation));
  }
  return text;
}

std::string ExplanationJson(ConfigDialect dialect, const TrainConfig& config,
                            const Explanation& explanation,
                            const Findings& findings) {
  const MeshPlan& mesh = explanation.mesh;
  Json json = {
      {"dialect", std::string(dialect_name(dialect))},
      {"findings", ListJson(findings)},
      {"mesh",
       {{"replicate", mesh.replicate},
        {"shard", mesh.shard},
        {"tensor_parallel", mesh.tensor_parallel},
        {"context_parallel", mesh.context_parallel},
        {"pipeline_parallel", mesh.pipeline_parallel},
        {"expert_parallel", mesh.expert_parallel},
        {"expert_tensor_parallel", mesh.expert_tensor_parallel}}},
      {"zero_stage", explanation.zero_stage},
      {"activation_checkpointing", *config.sharding.activation_checkpointing},
      {"activation_cpu_offload", *config.sharding.activation_cpu_offload},
      {"cpu_offload", *config.sharding.cpu_offload}};
  AddConfig(config, json);
  if (explanation.groups.empty()) return Dump(json);
  Json groups = Json::array();
  for (const GroupPlan& group : explanation.groups) {
    groups.push_back({{"name", group.name}, {"elements", NumElements(group)}});
  }
  json["groups"] = groups;
  Json memory = Json::object();
  for (const Row& row : MemoryRows(explanation.memory)) {
    memory[row.first] = row.second;
  }
  json["memory_bytes"] = memory;
  return Dump(json);
}

}  // namespace fsdp::tools
