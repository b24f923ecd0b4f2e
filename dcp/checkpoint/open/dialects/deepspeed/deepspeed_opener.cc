// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/open/dialects/deepspeed/deepspeed_opener.h"

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
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dialects/deepspeed/deepspeed_files.h"
#include "dcp/checkpoint/open/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/open/dialects/deepspeed/zero_partitions.h"
#include "dcp/checkpoint/open/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/open/dialects/state_collector.h"
#include "dcp/checkpoint/open/source_files.h"
#include "dcp/checkpoint/open/torch_opener.h"
#include "dcp/format/state_path.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The keys of the model states that are not extra.
constexpr absl::string_view kModelKeys[] = {
    "module",        "buffer_names",        "optimizer",
    "param_shapes",  "frozen_param_shapes", "frozen_param_fragments",
    "shared_params",
};

class DeepSpeedReader {
 public:
  DeepSpeedReader(FileSystem& fs, const DeepSpeedFiles& files,
                  const OpenOptions& options, const std::stop_token& stop)
      : fs_(fs), files_(files), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run() {
    parts_.format = Format::kTorch;
    parts_.dialect = Dialect::kDeepSpeed;
    DCP_ASSIGN_OR_RETURN(state_, ReadFiles());
    DCP_RETURN_IF_ERROR(AddModel());
    DCP_RETURN_IF_ERROR(AddOptimizer());
    DCP_RETURN_IF_ERROR(AddExtra());
    DCP_ASSIGN_OR_RETURN(parts_.entries, std::move(collector_).Finish());
    AddAliases();
    AddProperties();
    return std::move(parts_);
  }

 private:
  absl::StatusOr<DeepSpeedState> ReadFiles();
  absl::StatusOr<std::vector<DeepSpeedPickle>> ReadPickles(uint32_t begin,
                                                           size_t count);
  absl::Status AddModel();
  absl::Status AddModuleEntry(const std::string& name, const Value& value);
  absl::Status AddOptimizer();
  absl::Status AddExtra();
  // Adds the leaves of `root`, a dict of values of `pickle`, below `prefix`.
  absl::Status AddLeaves(const DeepSpeedPickle& pickle, const Value& root,
                         const std::string& prefix);
  void AddAliases();
  void AddProperties();

  const Value& model() const { return state_.models[0].root; }

  FileSystem& fs_;
  const DeepSpeedFiles& files_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  CheckpointParts parts_;
  DeepSpeedState state_;
  StateCollector collector_;
};

absl::StatusOr<std::vector<DeepSpeedPickle>> DeepSpeedReader::ReadPickles(
    uint32_t begin, size_t count) {
  std::vector<DeepSpeedPickle> pickles;
  for (uint32_t i = begin; i < begin + count; ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(i));
    const absl::StatusOr<const TorchArchive*> archive =
        AddArchive(fs_, file, options_, stop_, parts_);
    if (!archive.ok()) {
      return Annotate(archive.status(), parts_.files->PathOf(i));
    }
    pickles.push_back(
        {.file = i, .archive = *archive, .root = (*archive)->root});
  }
  return pickles;
}

absl::StatusOr<DeepSpeedState> DeepSpeedReader::ReadFiles() {
  std::vector<std::string> names = files_.models;
  names.insert(names.end(), files_.optims.begin(), files_.optims.end());
  parts_.files = std::make_unique<SourceFiles>(
      fs_, files_.directory, std::move(names), options_.direct,
      /*follow_symlinks=*/false);
  DCP_ASSIGN_OR_RETURN(std::vector<DeepSpeedPickle> models,
                       ReadPickles(0, files_.models.size()));
  DCP_ASSIGN_OR_RETURN(std::vector<DeepSpeedPickle> optims,
                       ReadPickles(static_cast<uint32_t>(files_.models.size()),
                                   files_.optims.size()));
  return ParseDeepSpeed(std::move(models), std::move(optims));
}

absl::Status DeepSpeedReader::AddModuleEntry(const std::string& name,
                                             const Value& value) {
  const DeepSpeedPickle& pickle = state_.models[0];
  absl::StatusOr<CheckpointEntry> entry =
      EntryInArchive(*pickle.archive, value, pickle.file);
  if (!entry.ok()) return Annotate(entry.status(), name);
  return collector_.AddValue({"model", name}, /*rank=*/0, *std::move(entry));
}

absl::Status DeepSpeedReader::AddModel() {
  DCP_ASSIGN_OR_RETURN(const Value module, GetKey(model(), "module"));
  if (!IsMapping(module)) {
    return absl::DataLossError(
        absl::StrCat("module is not a state dict: ", ToString(module, 60)));
  }
  absl::flat_hash_set<std::string> done;
  for (const auto& group : state_.groups) {
    for (const DeepSpeedParameter& parameter : group) {
      done.insert(parameter.name);
    }
  }
  DCP_RETURN_IF_ERROR(AddZeroPartitions(state_, collector_));
  DCP_RETURN_IF_ERROR(AddFrozenParameters(state_, collector_));
  const std::optional<Value> fragments =
      FindKey(model(), "frozen_param_fragments");
  if (fragments.has_value() && IsMapping(*fragments)) {
    for (const DeepSpeedParameter& parameter : state_.frozen) {
      done.insert(parameter.name);
    }
  }
  const std::optional<Value> aliases = FindKey(model(), "shared_params");
  absl::flat_hash_set<std::string> buffers;
  const std::optional<Value> names = FindKey(model(), "buffer_names");
  if (names.has_value() && names->is(Kind::kList)) {
    for (const Value& name : names->items()) {
      if (name.is(Kind::kStr)) buffers.emplace(name.text());
    }
  }
  for (size_t i = 0; i < module.items().size(); i += 2) {
    const Value& key = module.items()[i];
    if (!key.is(Kind::kStr)) continue;
    const std::string name(key.text());
    const bool is_alias =
        aliases.has_value() && FindKey(*aliases, name).has_value();
    // Stage 3 leaves nothing in the module but buffers.
    const bool is_whole = state_.stage != 3 || buffers.contains(name);
    if (done.contains(name) || is_alias || !is_whole) continue;
    DCP_RETURN_IF_ERROR(AddModuleEntry(name, module.items()[i + 1]));
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddLeaves(const DeepSpeedPickle& pickle,
                                        const Value& root,
                                        const std::string& prefix) {
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
        collector_.AddValue(leaf.path, /*rank=*/0, *std::move(entry)));
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedReader::AddOptimizer() {
  if (state_.optims.empty()) {
    const std::optional<Value> optimizer = FindKey(model(), "optimizer");
    if (!optimizer.has_value() || !IsMapping(*optimizer)) {
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(const Value module, GetKey(model(), "module"));
    const OptimizerNames names = FindOptimizerNames(module, *optimizer);
    return AddLeaves(
        state_.models[0],
        names.empty() ? *optimizer : WithNames(parts_.arena, *optimizer, names),
        "optimizer");
  }
  DCP_ASSIGN_OR_RETURN(const Value groups, NamedGroups(state_, parts_.arena));
  return AddLeaves(
      state_.optims[0],
      parts_.arena.Dict({parts_.arena.Str("param_groups"), groups}),
      "optimizer");
}

absl::Status DeepSpeedReader::AddExtra() {
  std::vector<Value> extra;
  for (size_t i = 0; i < model().items().size(); i += 2) {
    const Value& key = model().items()[i];
    if (key.is(Kind::kStr) &&
        std::find(std::begin(kModelKeys), std::end(kModelKeys), key.text()) !=
            std::end(kModelKeys)) {
      continue;
    }
    extra.push_back(key);
    extra.push_back(model().items()[i + 1]);
  }
  return AddLeaves(state_.models[0], parts_.arena.Dict(extra), "extra");
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
  add("ranks",
      absl::StrCat(std::max(files_.models.size(), files_.optims.size())));
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
  absl::StatusOr<CheckpointParts> parts =
      DeepSpeedReader(*directory.fs, *files, options, stop).Run();
  if (!parts.ok()) return Annotate(parts.status(), files->directory);
  return *std::move(parts);
}

}  // namespace dcp
