#include "dcp/checkpoint/open/checkpoint.h"

#include <numeric>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/dialects/deepspeed_files.h"
#include "dcp/checkpoint/open/dialects/deepspeed_opener.h"
#include "dcp/checkpoint/open/dialects/rank_files.h"
#include "dcp/checkpoint/open/dialects/ranks_opener.h"
#include "dcp/checkpoint/open/model_files.h"
#include "dcp/checkpoint/open/safetensors_opener.h"
#include "dcp/checkpoint/open/torch_opener.h"

namespace dcp {
namespace {

// Whether the file exists. A failure to look at it is an error and does not
// count as absent.
absl::StatusOr<bool> Exists(FileSystem& fs, absl::string_view directory,
                            absl::string_view name) {
  const absl::Status status = fs.Stat(JoinPath(directory, name)).status();
  if (absl::IsNotFound(status)) return false;
  DCP_RETURN_IF_ERROR(status);
  return true;
}

// The first bytes of a file; zeros if it is shorter.
struct FileHead {
  uint8_t bytes[512] = {};
  uint64_t file_size = 0;

  bool IsSafetensors() const {
    return bytes[8] == '{' && LoadLittleEndian<uint64_t>(bytes) < file_size;
  }
  bool IsTorch() const;
};

absl::StatusOr<FileHead> ReadHead(FileSystem& fs, absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(
      const File file,
      fs.OpenForRead(path, DirectMode::kOff, /*follow_symlinks=*/true));
  FileHead head;
  head.file_size = file.size;
  const uint64_t length = std::min<uint64_t>(sizeof(head.bytes), file.size);
  const absl::Status read =
      fs.Read(file, 0, MutableByteSpan(head.bytes, length));
  DCP_RETURN_IF_ERROR(fs.Close(file));
  DCP_RETURN_IF_ERROR(Annotate(read, path));
  return head;
}

// True for a zip archive whose first record is one that torch.save writes first
// ("<name>/data.pkl" or one of a few others), and for the magic number, as a
// pickle, that PyTorch wrote before 1.6.
bool FileHead::IsTorch() const {
  const absl::string_view text(reinterpret_cast<const char*>(bytes),
                               sizeof(bytes));
  constexpr absl::string_view kLegacyMagic(
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);
  if (absl::StartsWith(text, kLegacyMagic)) return true;
  constexpr size_t kNameOffset = 30;  // in a zip's local header
  if (!absl::StartsWith(text, "PK\x03\x04")) return false;
  const absl::string_view name =
      text.substr(kNameOffset, LoadLittleEndian<uint16_t>(bytes + 26));
  for (const absl::string_view record :
       {"/data.pkl", "/constants.pkl", "/version", "/byteorder",
        "/.format_version", "/.storage_alignment"}) {
    if (absl::EndsWith(name, record)) return true;
  }
  return false;
}

// The first file determines the format, because an index can have any name.
absl::StatusOr<CheckpointParts> OpenModel(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop) {
  const std::string first = JoinPath(model.directory, model.names[0]);
  DCP_ASSIGN_OR_RETURN(const FileHead head, ReadHead(fs, first));
  return absl::EndsWith(first, ".safetensors") || head.IsSafetensors()
             ? OpenSafetensors(fs, model, options, stop)
             : OpenTorch(fs, model, options, stop);
}

absl::StatusOr<CheckpointParts> OpenSingleFile(FileSystem& fs,
                                               absl::string_view path,
                                               const OpenOptions& options,
                                               const std::stop_token& stop) {
  if (!IsWeightIndexName(path)) {
    return OpenModel(fs, OneModelFile(path), options, stop);
  }
  DCP_ASSIGN_OR_RETURN(const ModelFiles model, ReadWeightIndex(fs, path, stop));
  return OpenModel(fs, model, options, stop);
}

absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const bool is_dcp, Exists(fs, path, kDcpMetadataName));
  if (is_dcp) return OpenDcp(fs, path, kDcpMetadataName, options, stop);
  for (const int64_t rank : {int64_t{0}, options.rank}) {
    if (rank < 0) continue;
    DCP_ASSIGN_OR_RETURN(const bool is_rank_local,
                         Exists(fs, path, RankMetadataName(rank)));
    if (is_rank_local) return OpenRankLocalDcp(fs, path, options, stop);
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> names, fs.List(path));
  DCP_ASSIGN_OR_RETURN(const std::optional<DeepSpeedFiles> deepspeed,
                       FindDeepSpeed(fs, path, names, stop));
  if (deepspeed.has_value()) {
    return OpenDeepSpeed(fs, *deepspeed, options, stop);
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<RankFiles> ranks,
                       FindRankFiles(names));
  if (!ranks.empty()) return OpenRankFiles(fs, path, ranks, options, stop);
  DCP_ASSIGN_OR_RETURN(const std::optional<ModelFiles> model,
                       FindModelFiles(fs, path, names, stop));
  if (model.has_value()) return OpenModel(fs, *model, options, stop);
  for (const DirectoryEntry& entry : names) {
    if (absl::StartsWith(entry.name, absl::StrCat(kDcpMetadataName, ".")) &&
        absl::EndsWith(entry.name, ".tmp")) {
      return absl::NotFoundError(
          absl::StrCat(path, ": the save did not finish: there is ", entry.name,
                       " but no .metadata"));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      path,
      ": not a checkpoint: the directory has neither .metadata (which a save "
      "writes last) nor .safetensors or .bin files of a model"));
}

}  // namespace

absl::StatusOr<bool> IsCheckpointFile(FileSystem& fs, absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const FileHead head, ReadHead(fs, path));
  return head.IsSafetensors() || head.IsTorch();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(
    FileSystem& fs, absl::string_view path, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  // The path that the user gives may be a link; links inside a directory are
  // not followed.
  const bool is_directory =
      info.kind == FileKind::kDirectory ||
      (info.kind == FileKind::kSymlink && fs.List(path).ok());
  absl::StatusOr<CheckpointParts> parts =
      is_directory ? OpenDirectory(fs, path, options, stop)
                   : OpenSingleFile(fs, path, options, stop);
  if (!parts.ok()) return parts.status();
  parts->check_crcs = options.check_crcs;
  return std::unique_ptr<Checkpoint>(
      new Checkpoint(fs, path, *std::move(parts), options));
}

void Checkpoint::IndexNames() {
  by_name_.reserve(parts_.entries.size());
  for (uint32_t i = 0; i < parts_.entries.size(); ++i) {
    by_name_[parts_.entries[i].fqn] = i;
  }
}

std::optional<uint32_t> Checkpoint::Find(absl::string_view fqn) const {
  const auto it = by_name_.find(fqn);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

absl::Status Checkpoint::Locate(absl::Span<const uint32_t> entries,
                                std::stop_token stop,
                                const ItemVisitor& visitor) {
  if (parts_.format != Format::kDcp) return absl::OkStatus();
  return LocateItems(fs_, parts_, entries, locate_memory_bytes_, stop,
                     progress_, visitor);
}

absl::Status Checkpoint::LocateAll(std::stop_token stop,
                                   const ItemVisitor& visitor) {
  std::vector<uint32_t> all(parts_.entries.size());
  std::iota(all.begin(), all.end(), 0);
  return Locate(all, stop, visitor);
}

}  // namespace dcp
