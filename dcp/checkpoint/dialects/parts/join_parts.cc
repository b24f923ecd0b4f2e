// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/join_parts.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/error_place.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/io/file_system.h"

namespace dcp {
namespace {

void ShiftFiles(uint32_t by, TensorEntry& tensor) {
  for (ChunkLocation& location : tensor.locations) location.item.file += by;
}

void ShiftFiles(uint32_t by, CheckpointEntry& entry) {
  if (auto* tensor = std::get_if<TensorEntry>(&entry.value)) {
    ShiftFiles(by, *tensor);
    return;
  }
  auto& object = std::get<ObjectEntry>(entry.value);
  object.item.file += by;
  for (auto& [identity, tensor] : object.tensors) ShiftFiles(by, tensor);
}

void AddPrefix(const StatePath& prefix, CheckpointEntry& entry) {
  if (prefix.empty()) return;
  StatePath path = prefix;
  // Safetensors have names without paths.
  if (entry.path.empty()) {
    path.emplace_back(entry.fqn);
  } else {
    path.insert(path.end(), entry.path.begin(), entry.path.end());
  }
  entry.path = std::move(path);
  entry.fqn = PathToName(entry.path);
}

// A DCP part, if any, determines how the whole is opened further.
Format JoinedFormat(const std::vector<PartToJoin>& all) {
  Format format = Format::kSafetensors;
  for (const PartToJoin& part : all) {
    if (part.parts.format == Format::kDcp) return Format::kDcp;
    if (part.parts.format == Format::kTorch) format = Format::kTorch;
  }
  return format;
}

class Joiner {
 public:
  absl::Status Add(PartToJoin part) {
    CheckpointParts& from = part.parts;
    const auto num_files = static_cast<uint32_t>(from.files->names().size());
    for (CheckpointEntry& entry : from.entries) {
      ShiftFiles(first_file_, entry);
      AddPrefix(part.prefix, entry);
      if (!names_.insert(entry.fqn).second) {
        return absl::DataLossError(
            absl::StrCat(entry.fqn, " is in two parts of the checkpoint, in ",
                         part.folder.empty() ? "its directory" : part.folder,
                         " and in another one"));
      }
      whole_.entries.push_back(std::move(entry));
    }
    for (ChunkDigest& digest : from.digests) {
      if (!part.folder.empty())
        digest.file = JoinPath(part.folder, digest.file);
      whole_.digests.push_back(std::move(digest));
    }
    for (const absl::Status& damage : from.damages) {
      whole_.damages.push_back(
          WithPlace(WithOptions(absl::Status(damage.code(), damage.message()),
                                NamedOptions(damage)),
                    {.file = JoinPath(part.folder, StatusPlace(damage).file)}));
    }
    for (const DigestFile& file : from.digest_files) {
      DCP_CHECK(file.folder.empty(), "parts are not joined twice");
      whole_.digest_files.push_back({.folder = part.folder, .name = file.name});
    }
    for (auto& archive : from.archives) {
      whole_.archives.push_back(std::move(archive));
    }
    whole_.archives.resize(first_file_ + num_files);
    whole_.more_arenas.push_back(std::move(from.arena));
    for (ValueArena& arena : from.more_arenas) {
      whole_.more_arenas.push_back(std::move(arena));
    }
    for (auto& pair : from.metadata) whole_.metadata.push_back(std::move(pair));
    for (SourceLoss& loss : from.losses) {
      whole_.losses.push_back(std::move(loss));
    }
    whole_.flattened = whole_.flattened && from.flattened;
    files_.push_back({.folder = part.folder, .files = std::move(from.files)});
    first_file_ += num_files;
    return absl::OkStatus();
  }

  CheckpointParts Finish(Format format, std::string directory) && {
    whole_.format = format;
    whole_.files = SourceFiles::Join(std::move(directory), std::move(files_));
    return std::move(whole_);
  }

 private:
  CheckpointParts whole_;
  std::vector<SourceFiles::Part> files_;
  absl::flat_hash_set<std::string> names_;
  uint32_t first_file_ = 0;
};

}  // namespace

std::string NumberedRoot(absl::string_view part, absl::string_view number) {
  return number.empty() || number == "0" ? std::string(part)
                                         : absl::StrCat(part, "_", number);
}

absl::StatusOr<CheckpointParts> JoinParts(std::string directory,
                                          std::vector<PartToJoin> all) {
  const Format format = JoinedFormat(all);
  Joiner joiner;
  for (PartToJoin& part : all) {
    DCP_RETURN_IF_ERROR(joiner.Add(std::move(part)));
  }
  return std::move(joiner).Finish(format, std::move(directory));
}

}  // namespace dcp
