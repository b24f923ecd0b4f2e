// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/whole_parts.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/format/torch/state_path.h"

namespace dcp {
namespace {

// Patterns for file names, with a number for the second and each later one.
constexpr char kModelFile[] =
    R"((?:model|pytorch_model)(?:_(\d+))?\.(?:safetensors|bin))";
constexpr char kOptimizerFile[] = R"(optimizer(?:_(\d+))?\.bin)";
constexpr char kOtherStateFile[] =
    R"((?:scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin)";
constexpr char kRandomStates[] = R"(random_states_\d+\.pkl)";
// The suffix that diffusers gives to a folder with a model's moving average.
constexpr absl::string_view kAverageSuffix = "_ema";

bool IsFile(const DirectoryEntry& entry, const char* pattern) {
  return entry.kind != FileKind::kDirectory &&
         RE2::FullMatch(entry.name, pattern);
}

// The number in a file name; empty for the first, nullopt for another file.
std::optional<std::string> NumberIn(const DirectoryEntry& entry,
                                    const char* pattern) {
  std::string number;
  if (entry.kind == FileKind::kDirectory ||
      !RE2::FullMatch(entry.name, pattern, &number)) {
    return std::nullopt;
  }
  return number;
}

bool HasState(const SourceDirectory& directory) {
  return std::any_of(directory.entries.begin(), directory.entries.end(),
                     [](const DirectoryEntry& entry) {
                       return IsFile(entry, kRandomStates) ||
                              IsFile(entry, kOptimizerFile);
                     });
}

// The entries that may be a model's files.
std::vector<DirectoryEntry> RemoveStateFiles(const SourceDirectory& directory) {
  std::vector<DirectoryEntry> entries = directory.entries;
  std::erase_if(entries, [](const DirectoryEntry& entry) {
    return IsFile(entry, kOptimizerFile) || IsFile(entry, kOtherStateFile);
  });
  return entries;
}

absl::StatusOr<PartToJoin> OpenModelPart(const SourceDirectory& directory,
                                         const std::string& folder,
                                         StatePath prefix,
                                         const ModelFiles& files,
                                         const OpenOptions& options,
                                         const std::stop_token& stop) {
  PartToJoin part{.folder = folder, .prefix = std::move(prefix), .parts = {}};
  DCP_ASSIGN_OR_RETURN(part.parts,
                       OpenModel(*directory.fs, files, options, stop));
  return part;
}

// The models in files with accelerate's own names.
absl::StatusOr<std::vector<PartToJoin>> OpenNamedModels(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  std::vector<PartToJoin> parts;
  for (const DirectoryEntry& entry : directory.entries) {
    const std::optional<std::string> number = NumberIn(entry, kModelFile);
    if (!number.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(
        parts.emplace_back(),
        OpenModelPart(directory, "", {NumberedRoot("model", *number)},
                      OneModelFile(directory.FullPath(entry.name)), options,
                      stop));
  }
  return parts;
}

// The models that the program saved itself: weights under another name, and
// folders with weights.
absl::StatusOr<std::vector<PartToJoin>> OpenOtherModels(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  std::vector<PartToJoin> parts;
  DCP_ASSIGN_OR_RETURN(std::optional<ModelFiles> files,
                       FindModelFiles(*directory.fs, directory.path,
                                      RemoveStateFiles(directory), stop));
  if (files.has_value()) {
    DCP_ASSIGN_OR_RETURN(
        parts.emplace_back(),
        OpenModelPart(directory, "", {"model"}, *files, options, stop));
  }
  for (const DirectoryEntry& entry : directory.entries) {
    if (absl::StartsWith(entry.name, ".")) continue;
    DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> folder,
                         OpenChildDirectory(directory, entry.name));
    if (!folder.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(files, FindModelFiles(*folder->fs, folder->path,
                                               folder->entries, stop));
    if (!files.has_value()) continue;
    DCP_ASSIGN_OR_RETURN(
        parts.emplace_back(),
        OpenModelPart(*folder, entry.name, {"model", entry.name}, *files,
                      options, stop));
  }
  return parts;
}

// The parameters in a model, without repetitions of tied ones, in the file's
// order if the file has one.
Parameters ParametersIn(const CheckpointParts& model) {
  Parameters parameters;
  absl::flat_hash_set<std::string> seen;
  for (const CheckpointEntry& entry : model.entries) {
    const TensorEntry* const tensor = entry.tensor();
    if (tensor == nullptr) continue;
    if (tensor->locations.size() == 1 && tensor->num_bytes() > 0) {
      const ChunkLocation& place = tensor->locations[0];
      const std::string memory =
          absl::StrCat(place.item.file, " ", place.payload_offset, " ",
                       ShapeToString(tensor->shape));
      if (place.located && !seen.insert(memory).second) continue;
    }
    parameters.emplace_back(entry.fqn, tensor->shape);
  }
  return parameters;
}

// `parameters` in the order of the file that the option like names.
absl::StatusOr<Parameters> OrderedLike(FileSystem& fs, const std::string& like,
                                       const Parameters& parameters,
                                       const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const CheckpointParts file,
                       OpenModel(fs, OneModelFile(like), {}, stop));
  if (file.format != Format::kTorch) {
    return absl::InvalidArgumentError(absl::StrCat(
        like,
        ": expected a state dict of torch.save, because safetensors do "
        "not record the order of parameters"));
  }
  absl::flat_hash_map<std::string, Dims> left(parameters.begin(),
                                              parameters.end());
  Parameters ordered;
  for (const CheckpointEntry& entry : file.entries) {
    const auto found = left.find(entry.fqn);
    if (found == left.end()) continue;
    ordered.emplace_back(*found);
    left.erase(found);
  }
  if (left.empty()) return ordered;
  return OptionError(absl::StatusCode::kInvalidArgument, like,
                     ": the model has ", left.begin()->first,
                     ", which is not in this file of ", OptionName{"like"});
}

// The known facts about a model's parameters, by their names in an optimizer's
// state.
absl::StatusOr<ModelParameters> PartParameters(FileSystem& fs,
                                               const PartToJoin& model,
                                               const DialectOptions& dialect,
                                               const std::stop_token& stop) {
  ModelParameters known{.parameters = ParametersIn(model.parts),
                        .has_order = model.parts.format == Format::kTorch};
  if (!known.has_order && dialect.optimizer_in_model_order &&
      !dialect.like.empty()) {
    DCP_ASSIGN_OR_RETURN(known.parameters,
                         OrderedLike(fs, dialect.like, known.parameters, stop));
    known.has_order = true;
  }
  if (model.folder.empty()) return known;
  for (auto& [name, shape] : known.parameters) {
    name = absl::StrCat(model.folder, ".", name);
  }
  return known;
}

}  // namespace

absl::StatusOr<PartToJoin> OpenOptimizer(const SourceDirectory& directory,
                                         const std::string& file,
                                         const std::string& root,
                                         const PartToJoin* model,
                                         const OpenOptions& options,
                                         const std::stop_token& stop) {
  std::optional<ModelParameters> known;
  if (model != nullptr) {
    DCP_ASSIGN_OR_RETURN(
        known, PartParameters(*directory.fs, *model, options.dialect, stop));
  }
  PartToJoin part{.folder = "", .prefix = {}, .parts = {}};
  DCP_ASSIGN_OR_RETURN(
      part.parts,
      OpenRankFiles(directory, {{.part = "optimizer", .names = {file}}},
                    options, stop, known.has_value() ? &*known : nullptr));
  if (model == nullptr) {
    part.parts.losses.push_back(
        {.part = StatePart::kOptimizer,
         .text = absl::StrCat(file,
                              " numbers the parameters, and no file records "
                              "which model they belong to: the state keeps "
                              "the numbers")});
  }
  for (CheckpointEntry& entry : part.parts.entries) {
    entry.path[0] = root;
    entry.fqn = PathToName(entry.path);
  }
  return part;
}

absl::StatusOr<std::vector<PartToJoin>> OpenWholeParts(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  if (!HasState(directory)) return std::vector<PartToJoin>();
  DCP_ASSIGN_OR_RETURN(std::vector<PartToJoin> parts,
                       OpenNamedModels(directory, options, stop));
  if (parts.empty()) {
    DCP_ASSIGN_OR_RETURN(parts, OpenOtherModels(directory, options, stop));
  }
  if (parts.empty()) return parts;
  std::vector<size_t> trained;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!absl::EndsWith(parts[i].folder, kAverageSuffix)) trained.push_back(i);
  }
  for (const DirectoryEntry& entry : directory.entries) {
    const std::optional<std::string> number = NumberIn(entry, kOptimizerFile);
    if (!number.has_value()) continue;
    // With several models, an optimizer may belong to any.
    DCP_ASSIGN_OR_RETURN(
        PartToJoin part,
        OpenOptimizer(directory, entry.name, NumberedRoot("optimizer", *number),
                      trained.size() == 1 ? &parts[trained[0]] : nullptr,
                      options, stop));
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace dcp
