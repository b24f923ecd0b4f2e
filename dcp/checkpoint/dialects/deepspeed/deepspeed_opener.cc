// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/deepspeed/deepspeed_opener.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_files.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/deepspeed/universal_state.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_partitions.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The keys in the model states that are not extra.
constexpr absl::string_view kModelKeys[] = {
    "module",        "buffer_names",        "optimizer",
    "param_shapes",  "frozen_param_shapes", "frozen_param_fragments",
    "shared_params",
};

// Whether this is the optimizer's state_dict() in stage 0's model states. With
// fp16, it comes from DeepSpeed's own optimizer around torch's.
bool IsTorchOptimizer(const Value& optimizer) {
  return FindKey(optimizer, "state").has_value() &&
         FindKey(optimizer, "param_groups").has_value();
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(FileSystem& fs, const DeepSpeedFiles& files,
                  const OpenOptions& options, const std::stop_token& stop)
      : fs_(fs), files_(files), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run() {
    DCP_RETURN_IF_ERROR(ReadFiles());
    absl::StatusOr<CheckpointParts> parts = Interpret();
    if (!parts.ok()) return Annotate(parts.status(), files_.directory);
    return parts;
  }

 private:
  absl::Status ReadFiles();
  absl::StatusOr<CheckpointParts> Interpret() {
    parts_.format = Format::kTorch;
    parts_.dialect = Dialect::kDeepSpeed;
    TakePickles();
    DCP_RETURN_IF_ERROR(CheckPrecision());
    DCP_RETURN_IF_ERROR(
        ParseDeepSpeed(options_.dialect.low_precision_weights, state_));
    DCP_RETURN_IF_ERROR(AddModel());
    DCP_RETURN_IF_ERROR(AddOptimizer());
    DCP_RETURN_IF_ERROR(AddExtra());
    DCP_ASSIGN_OR_RETURN(parts_.entries, std::move(collector_).Finish());
    AddAliases();
    AddProperties();
    return std::move(parts_);
  }
  void TakePickles();
  // The next file in parts_.
  DeepSpeedPickle NextPickle();
  // OK if the weights exist in the requested precision.
  absl::Status CheckPrecision();
  absl::Status AddModel();
  // The model's state dict; empty if a pipeline keeps it elsewhere.
  absl::StatusOr<Value> Module();
  absl::Status AddModuleEntry(const std::string& name, const Value& value);
  // The names in the module that other sources add.
  absl::flat_hash_set<std::string> NamesElsewhere(bool with_masters) const;
  // DataLoss unless the module has all parameters.
  absl::Status CheckModule(const Value& module) const;
  absl::Status AddOptimizer();
  // Adds the groups in `inner`, the optimizer's state_dict() in `pickle`.
  absl::Status AddGroups(const DeepSpeedPickle& pickle, const Value& inner);
  absl::Status AddExtra();
  // Adds the values in the rank's model states that are not the model.
  absl::Status AddRankExtra(size_t rank);
  // Adds the leaves in `root`, a dict with values from `pickle`, below
  // `prefix`, as the rank's.
  absl::Status AddLeaves(const DeepSpeedPickle& pickle, const Value& root,
                         const std::string& prefix, int64_t rank = 0);
  void AddAliases();
  void AddProperties();

  void AddOptimizerLoss(absl::string_view why) {
    parts_.losses.push_back(
        {.part = StatePart::kOptimizer,
         .needs_consent = true,
         .text = absl::StrCat("the optimizer is left out: ", why)});
  }

  const Value& model() const { return state_.models[0].root; }

  FileSystem& fs_;
  const DeepSpeedFiles& files_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  CheckpointParts parts_;
  uint32_t num_taken_ = 0;  // in parts_.files
  DeepSpeedState state_;
  StateCollector collector_;
};

absl::Status DeepSpeedReader::ReadFiles() {
  std::vector<std::string> names = files_.models;
  names.insert(names.end(), files_.parallel_models.begin(),
               files_.parallel_models.end());
  names.insert(names.end(), files_.optims.begin(), files_.optims.end());
  names.insert(names.end(), files_.universal.begin(), files_.universal.end());
  parts_.files = std::make_unique<SourceFiles>(
      fs_, files_.directory, std::move(names), options_.direct,
      /*follow_symlinks=*/false);
  return ReadArchives(
      fs_, options_, stop_, [](uint32_t) { return false; }, parts_);
}

DeepSpeedPickle DeepSpeedReader::NextPickle() {
  const uint32_t index = num_taken_++;
  const TorchArchive& archive = *parts_.archives[index];
  return DeepSpeedPickle{.file = index,
                         .name = parts_.files->names()[index],
                         .archive = &archive,
                         .root = archive.root};
}

void DeepSpeedReader::TakePickles() {
  for (size_t i = 0; i < files_.models.size(); ++i) {
    state_.models.push_back(NextPickle());
  }
  for (size_t i = 0; i < files_.parallel_models.size(); ++i) {
    state_.parallel_models.push_back(NextPickle());
  }
  for (size_t i = 0; i < files_.optims.size(); ++i) {
    state_.optims.push_back(NextPickle());
  }
  for (const std::string& name : files_.universal) {
    DeepSpeedPickle pickle = NextPickle();
    // "zero/PARAMETER/KEY.pt"
    absl::string_view parameter = name;
    absl::ConsumePrefix(&parameter, "zero/");
    absl::ConsumeSuffix(&parameter, ".pt");
    const size_t slash = parameter.rfind('/');
    if (slash != absl::string_view::npos) {
      state_.universal.push_back(
          {.parameter = std::string(parameter.substr(0, slash)),
           .key = std::string(parameter.substr(slash + 1)),
           .pickle = std::move(pickle)});
    } else if (parameter == "optimizer_state") {
      state_.universal_optimizer = std::move(pickle);
    }
  }
}

absl::Status DeepSpeedReader::CheckPrecision() {
  if (!files_.is_stage3) return absl::OkStatus();
  if (files_.optims.empty() && files_.universal.empty()) {
    return absl::NotFoundError(
        "ZeRO-3 keeps the weights in *_optim_states.pt, which are missing");
  }
  if (options_.dialect.low_precision_weights) {
    return OptionError(absl::StatusCode::kInvalidArgument,
                       "ZeRO-3 saves the weights in the optimizer's precision "
                       "only; leave out ",
                       OptionName{"low_precision_weights"});
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddModuleEntry(const std::string& name,
                                             const Value& value) {
  const DeepSpeedPickle& pickle = state_.models[0];
  absl::StatusOr<CheckpointEntry> entry =
      EntryInArchive(*pickle.archive, value, pickle.file);
  if (!entry.ok()) return Annotate(entry.status(), name);
  return collector_.AddValue({"model", name}, /*rank=*/0, *std::move(entry));
}

absl::StatusOr<Value> DeepSpeedReader::Module() {
  DCP_ASSIGN_OR_RETURN(const Value module, GetKey(model(), "module"));
  if (IsMapping(module)) return module;
  // A pipeline saves each layer in a separate file; a universal checkpoint has
  // only the parameters from these.
  if (!module.is_none() || state_.universal.empty()) {
    return absl::DataLossError(
        absl::StrCat("module is not a state dict: ", ToString(module, 60)));
  }
  if (options_.dialect.low_precision_weights) {
    return OptionError(
        absl::StatusCode::kInvalidArgument,
        "a universal checkpoint of a pipeline has the weights in the "
        "optimizer's precision only; leave out ",
        OptionName{"low_precision_weights"});
  }
  std::vector<const DeepSpeedPickle*> models = {&state_.models[0]};
  for (const DeepSpeedPickle& other : state_.parallel_models) {
    models.push_back(&other);
  }
  for (const DeepSpeedPickle* each : models) {
    const Value buffers = FindKey(each->root, "buffer_names").value_or(Value());
    if (!buffers.is(Kind::kList) || buffers.items().empty()) continue;
    parts_.losses.push_back(
        {.part = StatePart::kModel,
         .needs_consent = true,
         .text = absl::StrCat(
             "buffers of the model, such as ",
             ToString(buffers.items()[0], 100),
             ", are not in a universal checkpoint of a pipeline")});
    break;
  }
  return parts_.arena.Dict();
}

absl::Status DeepSpeedReader::AddModel() {
  DCP_ASSIGN_OR_RETURN(const Value module, Module());
  const bool with_masters = !options_.dialect.low_precision_weights;
  if (!state_.universal.empty()) {
    DCP_RETURN_IF_ERROR(AddUniversalState(state_, with_masters, collector_));
  } else if (!state_.groups.empty()) {
    DCP_RETURN_IF_ERROR(AddZeroPartitions(state_, with_masters, collector_));
  }
  DCP_RETURN_IF_ERROR(AddFrozenParameters(state_, collector_));
  const absl::flat_hash_set<std::string> done = NamesElsewhere(with_masters);
  const std::optional<Value> listed = FindKey(model(), "buffer_names");
  absl::flat_hash_set<absl::string_view> buffers;
  if (listed.has_value() && listed->is(Kind::kList)) {
    for (const Value& name : listed->items()) {
      if (name.is(Kind::kStr)) buffers.insert(name.text());
    }
  }
  // Stage 3 leaves nothing in the module but buffers.
  const bool only_buffers = state_.stage == 3;
  for (const auto& [name, value] : ItemsByKey(module)) {
    if (done.contains(name) || (only_buffers && !buffers.contains(name))) {
      continue;
    }
    DCP_RETURN_IF_ERROR(AddModuleEntry(std::string(name), value));
  }
  return with_masters ? absl::OkStatus() : CheckModule(module);
}

absl::flat_hash_set<std::string> DeepSpeedReader::NamesElsewhere(
    bool with_masters) const {
  absl::flat_hash_set<std::string> names;
  if (with_masters) {
    for (const auto& group : state_.groups) {
      for (const DeepSpeedParameter& parameter : group) {
        names.insert(parameter.name);
      }
    }
  }
  if (IsMapping(FindKey(model(), "frozen_param_fragments").value_or(Value()))) {
    for (const DeepSpeedParameter& parameter : state_.frozen) {
      names.insert(parameter.name);
    }
  }
  const Value aliases = FindKey(model(), "shared_params").value_or(Value());
  for (const auto& [alias, name] : ItemsByKey(aliases)) names.emplace(alias);
  return names;
}

absl::Status DeepSpeedReader::CheckModule(const Value& module) const {
  const auto values = ValuesByKey(module);
  for (const auto& group : state_.groups) {
    for (const DeepSpeedParameter& parameter : group) {
      if (values.contains(parameter.name)) continue;
      return absl::DataLossError(absl::StrCat(
          state_.models[0].name, ": module has no ", parameter.name));
    }
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddLeaves(const DeepSpeedPickle& pickle,
                                        const Value& root,
                                        const std::string& prefix,
                                        int64_t rank) {
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(root);
  if (!leaves.ok()) {
    return absl::DataLossError(
        absl::StrCat(prefix, ": ", leaves.status().message()));
  }
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    leaf.path.insert(leaf.path.begin(), prefix);
    absl::StatusOr<CheckpointEntry> entry =
        EntryInArchive(*pickle.archive, leaf.value, pickle.file);
    if (!entry.ok()) return Annotate(entry.status(), PathToName(leaf.path));
    DCP_RETURN_IF_ERROR(
        collector_.AddValue(leaf.path, rank, *std::move(entry)));
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddOptimizer() {
  if (!state_.universal.empty()) {
    return AddGroups(state_.universal_optimizer.archive != nullptr
                         ? state_.universal_optimizer
                         : state_.models[0],
                     UniversalOptimizer(state_));
  }
  if (!state_.optims.empty() && state_.groups.empty()) {
    AddOptimizerLoss("names of parameters are not recorded");
    return absl::OkStatus();
  }
  if (!state_.optims.empty()) {
    DCP_ASSIGN_OR_RETURN(const Value inner,
                         GetKey(state_.optims[0].root,
                                state_.stage == 3 ? "optimizer_state_dict"
                                                  : "base_optimizer_state"));
    return AddGroups(state_.optims[0], inner);
  }
  const Value shapes = FindKey(model(), "param_shapes").value_or(Value());
  const Value optimizer = FindKey(model(), "optimizer").value_or(Value());
  if (!shapes.is_none() && optimizer.is_none()) {
    parts_.losses.push_back(
        {.part = StatePart::kModel,
         .text = "*_optim_states.pt are missing: the weights have 16 "
                 "bits, and there is no optimizer"});
  }
  if (!IsMapping(optimizer) || optimizer.items().empty()) {
    return absl::OkStatus();
  }
  if (!IsTorchOptimizer(optimizer)) {
    AddOptimizerLoss("it comes from fp16 without ZeRO, which is not supported");
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(const Value module, GetKey(model(), "module"));
  const auto [names, needs_order] =
      FindOptimizerNames(SavedParameters(module), optimizer,
                         options_.dialect.optimizer_in_model_order);
  if (needs_order) {
    parts_.losses.push_back(NumberedOptimizer(/*has_order=*/true));
  }
  return AddLeaves(
      state_.models[0],
      names.empty() ? optimizer : WithNames(parts_.arena, optimizer, names),
      "optimizer");
}

absl::Status DeepSpeedReader::AddGroups(const DeepSpeedPickle& pickle,
                                        const Value& inner) {
  DCP_ASSIGN_OR_RETURN(const Value groups,
                       NamedGroups(state_, inner, parts_.arena));
  return AddLeaves(
      pickle, parts_.arena.Dict({parts_.arena.Str("param_groups"), groups}),
      "optimizer");
}

absl::Status DeepSpeedReader::AddExtra() {
  for (size_t rank = 0; rank < state_.models.size(); ++rank) {
    DCP_RETURN_IF_ERROR(AddRankExtra(rank));
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddRankExtra(size_t rank) {
  const DeepSpeedPickle& pickle = state_.models[rank];
  std::vector<Value> extra;
  for (size_t i = 0; i < pickle.root.items().size(); i += 2) {
    const Value& key = pickle.root.items()[i];
    if (key.is(Kind::kStr) &&
        std::find(std::begin(kModelKeys), std::end(kModelKeys), key.text()) !=
            std::end(kModelKeys)) {
      continue;
    }
    extra.push_back(key);
    extra.push_back(pickle.root.items()[i + 1]);
  }
  return AddLeaves(pickle, parts_.arena.Dict(extra), "extra",
                   static_cast<int64_t>(rank));
}

// Tied parameters: another name for the same place.
void DeepSpeedReader::AddAliases() {
  const std::optional<Value> aliases = FindKey(model(), "shared_params");
  if (!aliases.has_value() || !IsMapping(*aliases)) return;
  absl::flat_hash_map<std::string, size_t> by_name;
  for (size_t i = 0; i < parts_.entries.size(); ++i) {
    by_name.emplace(parts_.entries[i].fqn, i);
  }
  for (size_t i = 0; i < aliases->items().size(); i += 2) {
    const Value& alias = aliases->items()[i];
    const Value& name = aliases->items()[i + 1];
    if (!alias.is(Kind::kStr) || !name.is(Kind::kStr)) continue;
    const std::string fqn = absl::StrCat("model.", alias.text());
    const auto it = by_name.find(absl::StrCat("model.", name.text()));
    if (it == by_name.end() || by_name.contains(fqn)) continue;
    CheckpointEntry entry = parts_.entries[it->second];
    entry.fqn = fqn;
    entry.path = {"model", std::string(alias.text())};
    by_name.emplace(fqn, parts_.entries.size());
    parts_.entries.push_back(std::move(entry));
  }
}

void DeepSpeedReader::AddProperties() {
  const auto add = [this](absl::string_view label, std::string text) {
    parts_.properties.emplace_back(label, std::move(text));
  };
  const std::optional<Value> version = FindKey(model(), "ds_version");
  if (version.has_value() && version->is(Kind::kStr)) {
    add("version", std::string(version->text()));
  }
  add("ZeRO stage", absl::StrCat(state_.stage));
  if (files_.universal.empty()) {
    add("ranks",
        absl::StrCat(std::max(files_.models.size(), files_.optims.size())));
  } else {
    add("universal", "yes");
  }
  const std::optional<Value> step = FindKey(model(), "global_steps");
  if (step.has_value() && step->is(Kind::kInt)) {
    add("step", absl::StrCat(step->int_value()));
  }
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenDeepSpeed(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::optional<DeepSpeedFiles> files,
                       FindDeepSpeed(directory, stop));
  if (!files.has_value()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(
      CheckpointParts parts,
      DeepSpeedReader(*directory.fs, *files, options, stop).Run());
  if (!files->pointer.empty()) {
    parts.properties.emplace_back(
        "followed",
        absl::StrCat(files->pointer, " to ", BaseName(files->directory)));
  }
  for (const DirectoryEntry& entry : directory.entries) {
    if (!absl::EndsWith(entry.name, ".safetensors")) continue;
    parts.properties.emplace_back(
        "also here",
        absl::StrCat(entry.name, "; ", ToText({"from", "safetensors"}),
                     " reads the model of safetensors instead"));
    break;
  }
  return parts;
}

}  // namespace dcp
