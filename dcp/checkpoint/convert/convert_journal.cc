// SPDX-License-Identifier: Apache-2.0
// Describes the text of commits (see records/record_text.h), puts the records
// of a run together, and finds out whether the checkpoint has appeared.
#include "dcp/checkpoint/convert/convert_journal.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/store_destination.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/records/record_text.h"

namespace dcp {
namespace {

std::string Hex(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

template <typename Text, typename Commit>
void DescribeCommit(Text& text, Commit& commit) {
  auto& plan = commit.plan;
  text.Digest(commit.digest);
  text.Enum(plan.from, Format::kTorch);
  text.Enum(plan.to, Format::kTorch);
  text.Number(plan.num_tensors);
  text.Number(plan.num_objects);
  text.Number(plan.bytes_to_read);
  text.Number(plan.bytes_to_write);
  text.Number(plan.memory_bytes);
  text.Number(plan.num_lanes);
  text.Number(plan.num_files_kept);
  text.Number(plan.bytes_kept);
  EachLine(text, "file", plan.files, [&text](auto& file) {
    text.Number(file.bytes);
    text.Name(file.name);
  });
  NameLines(text, "dropped", plan.dropped);
  NameLines(text, "dropped_metadata", plan.dropped_metadata);
  NameLines(text, "code_left_out", plan.code_left_out);
  NameLines(text, "dropped_config", plan.dropped_config);
  NameLines(text, "not_copied", plan.not_copied);
  NameLines(text, "warning", plan.warnings);
  CheckLine(text, plan.check);
  EachLine(text, "loss", plan.cast_losses, [&text](auto& loss) {
    text.Type(loss.dtype);
    text.Number(loss.num_beyond);
    text.Name(loss.name);
  });
}

absl::StatusOr<JournaledRun::Committed> ParseCommit(absl::string_view text) {
  DCP_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(text, "commit"));
  JournaledRun::Committed commit{};
  DescribeCommit(reader, commit);
  DCP_RETURN_IF_ERROR(reader.status());
  return commit;
}

}  // namespace

OwnFiles JournaledRun::own() const {
  return {.id = plan.id,
          .ran_before = true,
          .made_directory = plan.journaled->made_directory,
          .names = plan.files};
}

std::string WriteCommitRecord(const JournaledRun::Committed& commit) {
  RecordWriter writer("commit");
  DescribeCommit(writer, commit);
  return writer.text();
}

absl::StatusOr<std::optional<JournaledRun>> ParseConvertRecords(
    absl::Span<const std::string> records) {
  std::optional<JournaledRun> run;
  for (const std::string& record : records) {
    const auto is_of = [&record](absl::string_view kind) {
      return absl::StartsWith(record, absl::StrCat(kRecordMagic, kind, " "));
    };
    if (is_of("plan") || !run.has_value()) {
      run.emplace();
      DCP_ASSIGN_OR_RETURN(run->plan, ParsePlanRecord(record));
      if (!run->plan.journaled.has_value()) return MalformedRecord(record);
    } else if (is_of("commit")) {
      DCP_ASSIGN_OR_RETURN(run->commit, ParseCommit(record));
    } else {
      DCP_ASSIGN_OR_RETURN(PieceRecord file,
                           ParsePieceRecord(record, run->plan));
      run->files[file.number] = std::move(file);
    }
  }
  return run;
}

absl::StatusOr<std::string> IndexDigest(FileSystem& fs, absl::string_view dst) {
  const absl::StatusOr<std::string> index =
      ReadFile(fs, JoinPath(dst, kDcpMetadataName), kMaxMetadataBytes,
               /*follow_symlinks=*/true);
  if (absl::IsNotFound(index.status())) return "-";
  DCP_RETURN_IF_ERROR(index.status());
  return Hex(Xxh3Digest(AsBytes(*index)));
}

absl::StatusOr<bool> WasCommitted(FileSystem& fs, absl::string_view dst,
                                  const JournaledRun& run) {
  if (!run.commit.has_value()) return false;
  const absl::Status there = fs.Stat(dst).status();
  if (absl::IsNotFound(there)) return false;
  DCP_RETURN_IF_ERROR(there);
  if (run.plan.kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(const std::string now, IndexDigest(fs, dst));
    return now == Hex(run.commit->digest);
  }
  if (!fs.TraitsAt(dst).has_rename) {
    return StoreDestination::HasAppeared(fs, dst, run.plan.kind, run.own());
  }
  const absl::StatusOr<FileInfo> staging =
      fs.Stat(Destination::StagingPath(dst, run.plan.kind, run.plan.id));
  if (absl::IsNotFound(staging.status())) return true;
  DCP_RETURN_IF_ERROR(staging.status());
  if (run.plan.kind == Destination::Kind::kFile) return false;
  if (run.plan.kind == Destination::Kind::kFolders) {
    // The empty directory that was replaced: they were exchanged.
    const absl::StatusOr<std::vector<DirectoryEntry>> left =
        fs.List(Destination::StagingPath(dst, run.plan.kind, run.plan.id));
    return left.ok() && left->empty();
  }
  // If the directories were exchanged, the digests at the destination are those
  // of this run.
  const absl::StatusOr<std::string> digests =
      ReadFile(fs, JoinPath(dst, DigestsName("")), kMaxMetadataBytes,
               /*follow_symlinks=*/true);
  return digests.ok() && Xxh3Digest(AsBytes(*digests)) == run.commit->digest;
}

}  // namespace dcp
