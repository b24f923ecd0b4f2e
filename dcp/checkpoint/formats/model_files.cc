// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/model_files.h"

#include <algorithm>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/mapped/mapped_names.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/safetensors/safetensors_index.h"

namespace dcp {
namespace {

constexpr absl::string_view kIndex = ".index";
constexpr absl::string_view kJson = ".json";
constexpr absl::string_view kSafetensors = ".safetensors";
constexpr absl::string_view kBin = ".bin";

// Files with the same suffix that trainers keep next to a model.
constexpr absl::string_view kOtherBinFiles[] = {
    "optimizer.bin", "scheduler.bin", "training_args.bin"};
// Hugging Face's name for a model in a single .bin file.
constexpr absl::string_view kWholeBinFile = "pytorch_model.bin";

std::string FirstNames(std::vector<std::string> names) {
  const size_t count = names.size();
  names.resize(std::min(count, kMaxNamesShown));
  return absl::StrCat(absl::StrJoin(names, ", "),
                      count > kMaxNamesShown ? ", ..." : "");
}

absl::Status MissingFilesError(absl::string_view who,
                               std::vector<std::string> names) {
  return absl::NotFoundError(
      absl::StrCat(who, ": ", names.size() == 1 ? "a file" : "files",
                   " of the model ", names.size() == 1 ? "is" : "are",
                   " missing: ", FirstNames(std::move(names))));
}

absl::Status SeveralModelsError(absl::string_view directory,
                                std::vector<std::string> names) {
  return absl::FailedPreconditionError(absl::StrCat(
      directory, ": several models: ", FirstNames(std::move(names)),
      "; give the path of one file or of one index"));
}

// "model-00002-of-00005.bin": the second of five shards of "model".
struct ShardName {
  std::string stem;
  uint64_t number = 0;
  uint64_t count = 0;
};

std::optional<ShardName> ParseShardName(absl::string_view name,
                                        absl::string_view suffix) {
  constexpr absl::string_view kOf = "-of-";
  constexpr size_t kDigits = 5;
  if (!absl::ConsumeSuffix(&name, suffix)) return std::nullopt;
  if (name.size() < 1 + 2 * kDigits + kOf.size()) return std::nullopt;
  const size_t begin = name.size() - (1 + 2 * kDigits + kOf.size());
  ShardName shard;
  if (name[begin] != '-' ||
      name.substr(begin + 1 + kDigits, kOf.size()) != kOf ||
      !absl::SimpleAtoi(name.substr(begin + 1, kDigits), &shard.number) ||
      !absl::SimpleAtoi(name.substr(name.size() - kDigits), &shard.count)) {
    return std::nullopt;
  }
  shard.stem = std::string(name.substr(0, begin));
  return shard;
}

// Shards, by the stem and count that all shards in one model share.
using ShardSets = absl::btree_map<std::pair<std::string, uint64_t>,
                                  absl::btree_set<uint64_t>>;

ShardSets FindShardSets(absl::Span<const std::string> names,
                        absl::string_view suffix) {
  ShardSets sets;
  for (const std::string& name : names) {
    std::optional<ShardName> shard = ParseShardName(name, suffix);
    // A rank that runs DCP's Hugging Face writer may have only some files.
    if (!shard.has_value() || absl::StartsWith(shard->stem, "shard-")) continue;
    sets[{std::move(shard->stem), shard->count}].insert(shard->number);
  }
  return sets;
}

absl::Status CheckComplete(absl::string_view directory, const ShardSets& sets,
                           absl::string_view suffix) {
  for (const auto& [set, numbers] : sets) {
    std::vector<std::string> missing;
    for (uint64_t number = 1; number <= set.second; ++number) {
      if (numbers.contains(number)) continue;
      missing.push_back(absl::StrFormat("%s-%05d-of-%05d%s", set.first, number,
                                        set.second, suffix));
    }
    if (!missing.empty())
      return MissingFilesError(directory, std::move(missing));
  }
  return absl::OkStatus();
}

// "model.safetensors" for "model.safetensors.index.json" and for a variant's
// index, "model.safetensors.index.fp16.json"; empty for other names.
absl::string_view NameBeforeIndex(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kJson)) return "";
  if (absl::ConsumeSuffix(&name, kIndex)) return name;
  const absl::string_view stem = name.substr(0, name.rfind('.'));
  return absl::EndsWith(stem, kIndex)
             ? stem.substr(0, stem.size() - kIndex.size())
             : "";
}

// The names that end in `suffix`, in their order.
std::vector<std::string> NamesWithSuffix(
    absl::Span<const DirectoryEntry> entries, absl::string_view suffix) {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind == FileKind::kDirectory) continue;
    if (absl::EndsWith(entry.name, suffix)) names.push_back(entry.name);
  }
  return names;
}

// The model that the only index for this suffix names; nullopt without one.
absl::StatusOr<std::optional<ModelFiles>> FindIndexed(
    FileSystem& fs, absl::string_view directory,
    absl::Span<const DirectoryEntry> entries, absl::string_view suffix,
    const std::stop_token& stop) {
  std::vector<std::string> indices = NamesWithSuffix(entries, kJson);
  std::erase_if(indices, [&](const std::string& name) {
    return !absl::EndsWith(NameBeforeIndex(name), suffix);
  });
  if (indices.empty()) return std::nullopt;
  if (indices.size() > 1) return SeveralModelsError(directory, indices);
  DCP_ASSIGN_OR_RETURN(
      ModelFiles model,
      ReadWeightIndex(fs, JoinPath(directory, indices[0]), stop));
  return model;
}

// Without an index, all safetensors files in a directory are one model, because
// DCP's Hugging Face writer leaves them this way.
absl::StatusOr<std::optional<ModelFiles>> FindSafetensors(
    absl::string_view directory, absl::Span<const DirectoryEntry> entries) {
  std::vector<std::string> names = NamesWithSuffix(entries, kSafetensors);
  if (names.empty()) return std::nullopt;
  DCP_RETURN_IF_ERROR(CheckComplete(
      directory, FindShardSets(names, kSafetensors), kSafetensors));
  return ModelFiles{.directory = std::string(directory),
                    .names = std::move(names),
                    .index = {}};
}

// Other .bin files may not belong to the model, or not be pickles at all.
absl::StatusOr<std::optional<ModelFiles>> FindBin(
    absl::string_view directory, absl::Span<const DirectoryEntry> entries) {
  std::vector<std::string> names = NamesWithSuffix(entries, kBin);
  std::erase_if(names, [](const std::string& name) {
    return std::find(std::begin(kOtherBinFiles), std::end(kOtherBinFiles),
                     name) != std::end(kOtherBinFiles);
  });
  if (names.empty()) return std::nullopt;
  ModelFiles model;
  model.directory = std::string(directory);
  const ShardSets sets = FindShardSets(names, kBin);
  if (std::find(names.begin(), names.end(), kWholeBinFile) != names.end()) {
    model.names.emplace_back(kWholeBinFile);
  } else if (sets.size() == 1) {
    DCP_RETURN_IF_ERROR(CheckComplete(directory, sets, kBin));
    for (std::string& name : names) {
      if (ParseShardName(name, kBin).has_value()) {
        model.names.push_back(std::move(name));
      }
    }
  } else if (names.size() == 1) {
    model.names = std::move(names);
  } else {
    return SeveralModelsError(directory, std::move(names));
  }
  return model;
}

}  // namespace

bool IsWeightIndexName(absl::string_view name) {
  return !NameBeforeIndex(name).empty();
}

bool IsShardName(absl::string_view name) {
  return ParseShardName(name, kSafetensors).has_value() ||
         ParseShardName(name, kBin).has_value();
}

ModelFiles OneModelFile(absl::string_view path) {
  return {.directory = ParentDirectory(path),
          .names = {std::string(BaseName(path))},
          .index = {}};
}

absl::StatusOr<ModelFiles> ReadWeightIndex(FileSystem& fs,
                                           absl::string_view path,
                                           const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::string json,
                       ReadFile(fs, path, kMaxSafetensorsHeaderBytes,
                                /*follow_symlinks=*/true, stop));
  absl::StatusOr<absl::flat_hash_map<std::string, std::string>> weight_map =
      ParseSafetensorsIndex(AsBytes(json));
  if (!weight_map.ok()) return Annotate(weight_map.status(), path);
  absl::btree_set<std::string> files;
  for (const auto& [tensor, file] : *weight_map) files.insert(file);
  if (files.empty()) {
    return absl::DataLossError(
        absl::StrCat(path, ": the weight_map names no tensor"));
  }
  ModelFiles model{.directory = ParentDirectory(path),
                   .names = {files.begin(), files.end()},
                   .index = {{.path = std::string(path),
                              .weight_map = *std::move(weight_map)}}};
  const SourceFiles there(fs, model.directory, model.names, DirectMode::kOff,
                          /*follow_symlinks=*/true);
  std::vector<char> is_missing(model.names.size());
  DCP_RETURN_IF_ERROR(there.ForEach(stop, [&](uint32_t i) {
    const absl::Status found = fs.Stat(there.FullPath(i)).status();
    is_missing[i] = absl::IsNotFound(found);
    return is_missing[i] ? absl::OkStatus() : Annotate(found, path);
  }));
  std::vector<std::string> missing;
  for (size_t i = 0; i < is_missing.size(); ++i) {
    if (is_missing[i]) missing.push_back(model.names[i]);
  }
  if (!missing.empty()) return MissingFilesError(path, std::move(missing));
  return model;
}

absl::StatusOr<std::optional<ModelFiles>> FindModelFiles(
    FileSystem& fs, absl::string_view directory,
    absl::Span<const DirectoryEntry> entries, const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<ModelFiles> model,
                       FindIndexed(fs, directory, entries, kSafetensors, stop));
  if (model.has_value()) return model;
  DCP_ASSIGN_OR_RETURN(model, FindSafetensors(directory, entries));
  if (model.has_value()) return model;
  DCP_ASSIGN_OR_RETURN(model, FindIndexed(fs, directory, entries, kBin, stop));
  if (model.has_value()) return model;
  return FindBin(directory, entries);
}

bool IndexedTensors::Take(absl::string_view name, uint32_t file, bool is_part) {
  if (!model_.index.has_value()) return true;
  const auto it = model_.index->weight_map.find(name);
  if (it == model_.index->weight_map.end()) {
    surplus_.emplace_back(name);
    return false;
  }
  if (it->second == model_.names[file]) {
    taken_.insert(it->first);
    return true;
  }
  elsewhere_.emplace(it->first, file);
  return is_part;
}

absl::Status IndexedTensors::CheckAll() const {
  if (!model_.index.has_value()) return absl::OkStatus();
  for (const auto& [name, file] : model_.index->weight_map) {
    if (taken_.contains(name)) continue;
    const auto found = elsewhere_.find(name);
    return absl::DataLossError(absl::StrCat(
        model_.index->path, ": the index says that ", name, " is in ", file,
        ", which lacks it",
        found == elsewhere_.end()
            ? ""
            : absl::StrCat("; it is in ", model_.names[found->second])));
  }
  return absl::OkStatus();
}

absl::Status InTwoFilesError(absl::string_view name, absl::string_view file,
                             absl::string_view other_file) {
  return OptionError(absl::StatusCode::kDataLoss, name, " is in ", file,
                     " and in ", other_file,
                     ", and no index says which of them counts: ",
                     OptionName{"exclude"}, " leaves the name out");
}

SourceLoss SurplusLoss(absl::Span<const std::string> surplus) {
  return {
      .part = StatePart::kModel,
      .text = absl::StrCat(ShortNameList(std::vector<absl::string_view>(
                               surplus.begin(), surplus.end())),
                           ", which the index does not name, are left out")};
}

}  // namespace dcp
