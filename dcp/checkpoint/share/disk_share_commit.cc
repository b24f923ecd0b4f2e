// SPDX-License-Identifier: Apache-2.0
// Commits a shared conversion on a disk: one worker at a time, by a rename.
// Tested by tests/dcp/checkpoint/share/share_commit_test.cc.
//
// [Note: marks] The index of a DCP checkpoint has the plan's id, so a late
// worker can tell that the work is done. Other formats have no place for an id.
// For them, the file .<name>.<id>.done next to the destination identifies the
// result. It is written before the rename that makes the result appear, and
// stays until another result replaces it.
#include "dcp/checkpoint/share/disk_share_commit.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/plan_destination.h"

namespace dcp {
namespace {

constexpr absl::string_view kMarkSuffix = "done";
// The lock file of the committing worker, next to the records.
constexpr absl::string_view kTurnName = "commit.lock";

// How often one worker removes the leftovers of late workers.
constexpr int kMaxCleanings = 100;

}  // namespace

std::string DiskShareCommit::MarkPath(absl::string_view id) const {
  return SiblingPath(dst_, id, kMarkSuffix);
}

// A line that no other file or directory at the same path has. Files are still
// written to a directory that has appeared, so the digests identify it.
absl::StatusOr<std::string> DiskShareCommit::FindMark(absl::string_view path,
                                                      uint64_t digest) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs_.Stat(path));
  const bool is_file = plan_.kind == DestinationKind::kFile;
  return absl::StrCat(
      "tessera-done 1 ", info.inode, " ", is_file ? info.size : 0, " ",
      is_file ? info.modified_ns : 0, " ", absl::Hex(digest), "\n");
}

absl::StatusOr<std::string> DiskShareCommit::MarkOfDestination() {
  if (plan_.kind == DestinationKind::kFile) return FindMark(dst_, 0);
  const absl::StatusOr<std::string> digests =
      ReadFile(fs_, JoinPath(dst_, conversion_.output.digests_name),
               kMaxMetadataBytes, /*follow_symlinks=*/false);
  if (absl::IsNotFound(digests.status())) return FindMark(dst_, 0);
  DCP_RETURN_IF_ERROR(digests.status());
  return FindMark(dst_, Xxh3Digest(AsBytes(*digests)));
}

absl::Status DiskShareCommit::Announce(
    const std::vector<ChunkDigest>& digests) {
  const bool has_digests =
      plan_.kind != DestinationKind::kFile && !digests.empty();
  if (plan_.kind == DestinationKind::kDcpDirectory) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(
      const std::string mark,
      FindMark(Destination::StagingPath(dst_, plan_.kind, plan_.id),
               has_digests ? Xxh3Digest(AsBytes(WriteDigests(digests))) : 0));
  DCP_RETURN_IF_ERROR(records_.Publish(MarkPath(plan_.id), mark));
  // Removes the marks of replaced results.
  const std::string parent = ParentDirectory(dst_);
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs_.List(parent));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = JoinPath(parent, entry.name);
    if (IsSiblingName(entry.name, BaseName(dst_), kMarkSuffix) &&
        path != MarkPath(plan_.id)) {
      fs_.Remove(path).IgnoreError();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DiskShareCommit::IsThere() {
  if (plan_.kind == DestinationKind::kDcpDirectory) return HasIndex();
  // See [Note: marks].
  const absl::StatusOr<std::string> mark =
      ReadFile(fs_, MarkPath(plan_.id), kMaxMetadataBytes,
               /*follow_symlinks=*/false);
  if (absl::IsNotFound(mark.status())) return false;
  DCP_RETURN_IF_ERROR(mark.status());
  const absl::StatusOr<std::string> now = MarkOfDestination();
  if (absl::IsNotFound(now.status())) return false;
  DCP_RETURN_IF_ERROR(now.status());
  return *mark == *now;
}

// The worker with the lock cleans up, and looks again after it has released the
// lock. Late workers that could not take the lock rely on that.
void DiskShareCommit::Clean() {
  for (int i = 0; i < kMaxCleanings && IsAnythingLeft(); ++i) {
    absl::StatusOr<std::unique_ptr<Destination>> destination = PlanDestination(
        fs_, dst_, plan_.kind, /*overwrite=*/true, Own(), options_.writer);
    if (!destination.ok()) return;
    RemoveWhatIsLeft(**destination);
  }
}

bool DiskShareCommit::IsAnythingLeft() {
  return HasStaging() || fs_.Stat(records_.directory()).ok();
}

bool DiskShareCommit::HasStaging() {
  return plan_.kind != DestinationKind::kDcpDirectory &&
         fs_.Stat(Destination::StagingPath(dst_, plan_.kind, plan_.id)).ok();
}

void DiskShareCommit::RemoveWhatIsLeft(Destination& destination) {
  destination.Keep();
  absl::Status status = destination.FinishCommit();
  if (plan_.kind == DestinationKind::kFile && HasStaging()) {
    status.Update(
        fs_.Remove(Destination::StagingPath(dst_, plan_.kind, plan_.id)));
  }
  status.Update(fs_.SyncDirectory(ParentDirectory(records_.directory())));
  RemoveRecords(status);
}

absl::StatusOr<ShareCommit::Outcome> DiskShareCommit::Commit() {
  // The destination's lock refuses strangers. Workers with one plan must not
  // take each other for strangers.
  DCP_ASSIGN_OR_RETURN(
      std::unique_ptr<DestinationLock> turn,
      DestinationLock::TryTake(fs_, JoinPath(records_.directory(), kTurnName),
                               options_.writer));
  if (turn == nullptr) return Outcome::kByAnother;
  absl::StatusOr<std::unique_ptr<Destination>> destination = PlanDestination(
      fs_, dst_, plan_.kind, options_.overwrite, Own(), options_.writer);
  if (destination.ok()) (*destination)->Keep();
  DCP_ASSIGN_OR_RETURN(const bool is_there, IsThere());
  if (!is_there) {
    DCP_RETURN_IF_ERROR(
        WithSide(destination.status(), ErrorSide::kDestination));
    DCP_RETURN_IF_ERROR(MakeAppear(**destination));
  }
  // Both end before the directories around them are removed.
  turn.reset();
  if (destination.ok()) destination->reset();
  Clean();
  return is_there ? Outcome::kWasThere : Outcome::kCommitted;
}

absl::Status DiskShareCommit::Complete(const std::vector<PieceRecord>& records,
                                       Destination& destination) {
  // Another run, which this one knows nothing about, may have removed files.
  for (uint32_t i = 0; i < plan_.files.size(); ++i) {
    const std::string path = destination.FilePath(plan_.files[i]);
    const uint64_t size = conversion_.output.files[i].layout.size();
    const absl::StatusOr<FileInfo> info = fs_.Stat(path);
    if (info.ok() && info->size == size) continue;
    if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
    return ForgetFile(i, path);
  }
  const OwnFiles own = Own();
  DCP_RETURN_IF_ERROR(
      destination.Begin({own.names.begin(), own.names.end()}, {}));
  return WriteMissing(destination, records);
}

// Writes the literals that need the checksums of several pieces.
absl::Status DiskShareCommit::WriteMissing(
    const Destination& destination, absl::Span<const PieceRecord> records) {
  Output& output = conversion_.output;
  const std::vector<MissingLiteral> missing =
      LiteralsOutside(FilesToCut(output, /*cuts=*/true), plan_.pieces);
  size_t first_piece = 0;
  for (size_t i = 0; i < missing.size();) {
    const uint32_t number = missing[i].file;
    OutputFile& file = output.files[number];
    std::vector<uint32_t> crcs(file.layout.parts().size());
    std::vector<ChunkDigest> digests;
    while (plan_.pieces[first_piece].file < number) ++first_piece;
    for (size_t p = first_piece;
         p < plan_.pieces.size() && plan_.pieces[p].file == number; ++p) {
      const WrittenFile& written = records[p].written;
      const FilePiece& piece = plan_.pieces[p];
      if (output.needs_crcs &&
          written.crcs.size() != piece.end_part - piece.first_part) {
        return absl::DataLossError(absl::StrCat(
            records_.directory(), "/", p, " has ", written.crcs.size(),
            " CRCs instead of ", piece.end_part - piece.first_part));
      }
      std::copy(written.crcs.begin(), written.crcs.end(),
                crcs.begin() + piece.first_part);
      digests.insert(digests.end(), written.digests.begin(),
                     written.digests.end());
    }
    DCP_ASSIGN_OR_RETURN(
        const File open,
        fs_.OpenShared(destination.FilePath(file.layout.name()),
                       file.layout.size(), DirectMode::kOff));
    absl::Status status;
    for (; i < missing.size() && missing[i].file == number; ++i) {
      const uint32_t part = missing[i].part;
      const std::string bytes = part == 0 && file.head != nullptr
                                    ? file.head(digests)
                                    : file.literal(part, crcs);
      if (status.ok()) {
        status =
            fs_.Write(open, file.layout.parts()[part].offset, AsBytes(bytes));
      }
    }
    if (status.ok()) status = fs_.Sync(open);
    status.Update(fs_.Close(open));
    DCP_RETURN_IF_ERROR(
        Annotate(status, destination.FilePath(file.layout.name())));
  }
  return absl::OkStatus();
}

}  // namespace dcp
