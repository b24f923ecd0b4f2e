// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/no_checkpoint.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/dialects/parts/foreign_directory.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/format/file/foreign_file.h"

namespace dcp {
namespace {

constexpr absl::string_view kSymlink = ".symlink";
constexpr uint64_t kMaxSymlinkBytes = 4096;
constexpr size_t kMaxFoldersShown = 10;

// Lists the models in a diffusers pipeline.
constexpr absl::string_view kPipelineIndex = "model_index.json";

// The step folders that training programs make.
constexpr char kStepFolder[] =
    R"((?:checkpoint|epoch|global_step|iter|step)[-_=]?\d.*|ep\d+-ba\d+.*)";
// Folders in a step's folder that are separate checkpoints: verl's roles,
// NeMo's, OLMo-core's, ColossalAI's.
constexpr absl::string_view kParts[] = {
    "actor", "critic", "ref", "model_and_optim", "modeling", "weights"};

// "a, b, c and 5 more".
std::string ShownNames(std::vector<std::string> names) {
  const size_t count = names.size();
  names.resize(std::min(count, kMaxFoldersShown));
  return absl::StrCat(
      absl::StrJoin(names, ", "),
      count > kMaxFoldersShown
          ? absl::StrCat(" and ", count - kMaxFoldersShown, " more")
          : "");
}

// Orders step-2 before step-10.
std::pair<uint64_t, std::string> NaturalKey(const std::string& name) {
  const size_t begin = name.find_first_of("0123456789");
  uint64_t number = 0;
  if (begin != std::string::npos) {
    const size_t end = name.find_first_not_of("0123456789", begin);
    if (!absl::SimpleAtoi(name.substr(begin, end - begin), &number)) {
      number = UINT64_MAX;
    }
  }
  return {number, name};
}

// The names in the directory that `is_one` accepts.
template <typename IsOne>
std::vector<std::string> Names(const SourceDirectory& directory,
                               const IsOne& is_one) {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : directory.entries) {
    if (is_one(entry)) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) {
              return NaturalKey(a) < NaturalKey(b);
            });
  return names;
}

// The name of the first file that a save leaves only if it did not finish;
// empty if there is none.
std::string Unfinished(const SourceDirectory& directory) {
  for (const DirectoryEntry& entry : directory.entries) {
    if (absl::StartsWith(entry.name, absl::StrCat(kDcpMetadataName, ".")) &&
        absl::EndsWith(entry.name, ".tmp")) {
      return entry.name;
    }
  }
  return "";
}

// Why data files without an index are not a checkpoint; OK if there are none.
absl::Status CheckIndices(const SourceDirectory& directory) {
  const std::string unfinished = Unfinished(directory);
  if (!unfinished.empty()) {
    return absl::NotFoundError(
        absl::StrCat(directory.path, ": the save did not finish: there is ",
                     unfinished, " but no ", kDcpMetadataName));
  }
  for (const DirectoryEntry& entry : directory.entries) {
    if (!absl::EndsWith(entry.name, ".distcp")) continue;
    return absl::NotFoundError(absl::StrCat(
        directory.path, ": there is ", entry.name, " but no ", kDcpMetadataName,
        ", which rank 0 writes last: the save did not finish, or each machine "
        "wrote to its own disk; then copy the files together"));
  }
  return absl::OkStatus();
}

// Why the remains of a dialect are not a checkpoint; OK if there are none.
absl::Status CheckRemains(const SourceDirectory& directory,
                          const std::stop_token& stop) {
  for (const DialectOpener& opener : DialectOpeners()) {
    if (opener.check_remains == nullptr) continue;
    DCP_RETURN_IF_ERROR(opener.check_remains(directory, stop));
  }
  return absl::OkStatus();
}

// The error for a folder with several checkpoints; OK for other folders.
absl::Status CheckSteps(const SourceDirectory& directory) {
  const RE2 step(kStepFolder);
  const std::vector<std::string> steps =
      Names(directory, [&](const DirectoryEntry& entry) {
        return entry.kind == FileKind::kDirectory &&
               !absl::EndsWith(entry.name, ".tmp") &&
               RE2::FullMatch(entry.name, step);
      });
  const std::vector<std::string> parts =
      Names(directory, [](const DirectoryEntry& entry) {
        return entry.kind == FileKind::kDirectory &&
               std::find(std::begin(kParts), std::end(kParts), entry.name) !=
                   std::end(kParts);
      });
  const std::vector<std::string> files =
      Names(directory, [](const DirectoryEntry& entry) {
        // A .bin file would have been taken for the model.
        return entry.kind == FileKind::kFile &&
               FormatFromSuffix(entry.name) == Format::kTorch &&
               !absl::EndsWith(entry.name, ".bin");
      });
  for (const std::vector<std::string>* names : {&steps, &parts, &files}) {
    if (names->empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(directory.path, ": not a checkpoint itself, but it has ",
                     ShownNames(*names),
                     names->size() == 1 ? "; give the path of that"
                                        : "; give the path of one of them"));
  }
  return absl::OkStatus();
}

// The error for a diffusers pipeline, which has a folder for each model; OK for
// other folders.
absl::Status CheckPipeline(const SourceDirectory& directory,
                           const std::stop_token& stop) {
  if (!directory.HasFile(kPipelineIndex)) return absl::OkStatus();
  std::vector<std::string> models;
  for (const DirectoryEntry& entry : directory.entries) {
    DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> folder,
                         OpenChildDirectory(directory, entry.name));
    if (!folder.has_value()) continue;
    const absl::StatusOr<std::optional<ModelFiles>> files =
        FindModelFiles(*folder->fs, folder->path, folder->entries, stop);
    // An incomplete model counts, too.
    if (!files.ok() || files->has_value()) models.push_back(entry.name);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      directory.path, ": this is a pipeline of diffusers with the models ",
      models.empty() ? "of other places" : ShownNames(std::move(models)),
      "; give the path of one of them"));
}

}  // namespace

absl::Status WhyNoCheckpoint(const SourceDirectory& directory,
                             const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckForeignDirectory(directory));
  DCP_RETURN_IF_ERROR(CheckIndices(directory));
  DCP_RETURN_IF_ERROR(CheckRemains(directory, stop));
  DCP_RETURN_IF_ERROR(CheckPipeline(directory, stop));
  DCP_RETURN_IF_ERROR(CheckSteps(directory));
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.kind != FileKind::kFile) continue;
    DCP_RETURN_IF_ERROR(
        CheckFileName(*directory.fs, directory.FullPath(entry.name), stop));
  }
  return absl::NotFoundError(absl::StrCat(
      directory.path,
      ": not a checkpoint: the directory has neither .metadata (which a save "
      "writes last) nor .safetensors or .bin files of a model"));
}

absl::Status CheckFileName(FileSystem& fs, absl::string_view path,
                           const std::stop_token& stop) {
  const std::string foreign = ForeignName(BaseName(path));
  if (!foreign.empty()) {
    return absl::UnimplementedError(absl::StrCat(path, ": this is ", foreign));
  }
  if (!absl::EndsWith(path, kSymlink)) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs, path, kMaxSymlinkBytes,
                                /*follow_symlinks=*/false, stop));
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": this is a link of Composer to '",
                   absl::StripAsciiWhitespace(text).substr(0, 200),
                   "' in its remote storage: fetch that and give its path"));
}

}  // namespace dcp
