// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/accelerate_opener.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/huggingface/extra_files.h"
#include "dcp/checkpoint/dialects/huggingface/whole_parts.h"
#include "dcp/checkpoint/dialects/ranks/flat_dcp.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/torch/state_path.h"

namespace dcp {
namespace {

// Patterns for accelerate's files and folders, each with the model's or
// optimizer's number; the first one's full state dict has none.
struct NamePattern {
  absl::string_view pattern;
  absl::string_view part;
};
constexpr NamePattern kFolderNames[] = {
    {R"(pytorch_model_fsdp_(\d+))", "model"},
    {R"(optimizer_(\d+))", "optimizer"}};
constexpr NamePattern kFullFileNames[] = {
    {R"(pytorch_model_fsdp(?:_(\d+))?\.bin)", "model"},
    {R"(optimizer(?:_(\d+))?\.bin)", "optimizer"}};
constexpr NamePattern kRankFileNames[] = {
    {R"(pytorch_model_fsdp(?:_(\d+))?_rank\d+\.bin)", "model"},
    {R"(optimizer(?:_(\d+))?_rank\d+\.bin)", "optimizer"}};

constexpr absl::string_view kAccelerateFiles[] = {
    "scheduler.bin",
    "scheduler_{number}.bin",
    "scaler.pt",
    "sampler.bin",
    "sampler_{number}.bin",
    "dl_state_dict.bin",
    "dl_state_dict_{number}.bin",
    "random_states_{rank}.pkl",
    "custom_checkpoint_{number}.pkl"};

// The root of the part that has `name` as a file or folder.
std::optional<std::string> FindRoot(absl::Span<const NamePattern> kinds,
                                    const std::string& name) {
  for (const NamePattern& kind : kinds) {
    std::string number;
    if (RE2::FullMatch(name, RE2(std::string(kind.pattern)), &number)) {
      return NumberedRoot(kind.part, number);
    }
  }
  return std::nullopt;
}

// NotFound unless all files that the index in `folder` names are in it.
absl::Status CheckFiles(const SourceDirectory& folder,
                        const CheckpointParts& parts) {
  std::vector<std::string> missing;
  for (const std::string& name : parts.files->names()) {
    if (!folder.HasFile(name)) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  const size_t count = missing.size();
  constexpr size_t kMaxShown = 5;
  missing.resize(std::min(count, kMaxShown));
  return absl::NotFoundError(absl::StrCat(
      folder.path, ": ", count, " of the ", parts.files->names().size(),
      " files that its .metadata names are missing: ",
      absl::StrJoin(missing, ", "), count > kMaxShown ? ", ..." : "",
      "; if each machine wrote to its own disk, copy them together"));
}

// The DCP checkpoint in `folder`, with `root` added before the names; nullopt
// if the folder has another format.
absl::StatusOr<std::optional<PartToJoin>> OpenFolder(
    const SourceDirectory& folder, const std::string& name,
    const std::string& root, const OpenOptions& options,
    const std::stop_token& stop) {
  if (!folder.HasFile(kDcpMetadataName)) {
    const bool has_data =
        std::any_of(folder.entries.begin(), folder.entries.end(),
                    [](const DirectoryEntry& entry) {
                      return absl::EndsWith(entry.name, ".distcp");
                    });
    if (!has_data) return std::nullopt;
    return absl::NotFoundError(absl::StrCat(
        folder.path,
        ": there are data files, but no .metadata: the save did not finish, or "
        "each machine wrote to its own disk; in that case, copy their files "
        "together"));
  }
  PartToJoin part{.folder = name, .prefix = {}, .parts = {}};
  DCP_ASSIGN_OR_RETURN(part.parts, OpenDcp(*folder.fs, folder.path,
                                           kDcpMetadataName, options, stop));
  DCP_RETURN_IF_ERROR(CheckFiles(folder, part.parts));
  DCP_RETURN_IF_ERROR(
      Annotate(ResolveFlatParameters(*folder.fs, options, stop, part.parts),
               folder.path));
  for (CheckpointEntry& entry : part.parts.entries) {
    if (entry.path.empty()) continue;
    entry.path[0] = root;
    entry.fqn = PathToName(entry.path);
  }
  return part;
}

// The models' and optimizers' torch.save files, full ones and the ranks'.
absl::StatusOr<std::vector<RankFiles>> FindStateFiles(
    const SourceDirectory& directory) {
  std::vector<RankFiles> families;
  std::vector<DirectoryEntry> of_ranks;
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.kind == FileKind::kDirectory) continue;
    if (FindRoot(kRankFileNames, entry.name).has_value()) {
      of_ranks.push_back(entry);
    } else if (const auto root = FindRoot(kFullFileNames, entry.name)) {
      families.push_back({.part = *root, .names = {entry.name}});
    }
  }
  absl::StatusOr<std::vector<RankFiles>> found = FindRankFiles(of_ranks);
  if (!found.ok()) return Annotate(found.status(), directory.path);
  for (RankFiles& files : *found) {
    files.part = *FindRoot(kRankFileNames, files.names[0]);
    families.push_back(std::move(files));
  }
  return families;
}

bool IsModel(absl::string_view root) { return absl::StartsWith(root, "model"); }

}  // namespace

absl::StatusOr<std::vector<PartToJoin>> OpenFsdpParts(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  std::vector<PartToJoin> parts;
  bool has_model = false;
  for (const bool is_model : {true, false}) {  // models come first
    for (const DirectoryEntry& entry : directory.entries) {
      const auto root = FindRoot(kFolderNames, entry.name);
      if (!root.has_value() || IsModel(*root) != is_model) continue;
      DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> folder,
                           OpenChildDirectory(directory, entry.name));
      if (!folder.has_value()) continue;
      DCP_ASSIGN_OR_RETURN(
          std::optional<PartToJoin> part,
          OpenFolder(*folder, entry.name, *root, options, stop));
      if (!part.has_value()) continue;
      has_model = has_model || is_model;
      parts.push_back(*std::move(part));
    }
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<RankFiles> families,
                       FindStateFiles(directory));
  has_model = has_model || std::any_of(families.begin(), families.end(),
                                       [](const RankFiles& files) {
                                         return IsModel(files.part);
                                       });
  // An optimizer alone may be next to a model in any format.
  if (!has_model) return std::vector<PartToJoin>();
  if (!families.empty()) {
    PartToJoin part{.folder = "", .prefix = {}, .parts = {}};
    DCP_ASSIGN_OR_RETURN(part.parts,
                         OpenRankFiles(directory, families, options, stop));
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::StatusOr<std::optional<CheckpointParts>> TryOpenAccelerate(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::vector<PartToJoin> parts,
                       OpenFsdpParts(directory, options, stop));
  if (parts.empty()) {
    DCP_ASSIGN_OR_RETURN(parts, OpenWholeParts(directory, options, stop));
  }
  if (parts.empty()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(
      std::optional<PartToJoin> extra,
      OpenExtraFiles(directory, kAccelerateFiles, options, stop));
  if (extra.has_value()) parts.push_back(*std::move(extra));
  DCP_ASSIGN_OR_RETURN(CheckpointParts whole,
                       JoinParts(directory.path, std::move(parts)));
  whole.dialect = Dialect::kAccelerate;
  return whole;
}

}  // namespace dcp
