// SPDX-License-Identifier: Apache-2.0
// A record consists of lines. The first word of the first line says which
// record it is:
//
//   plan 1 <fingerprint> <kind> <made directory> <id> <digest of the index>
//   name <name of a data file>
//   ...
//
//   file <number>
//   <offset> <length> <digest>
//   ...
//   beyond <payload> <number of elements>
//   ...
//
//   commit <digest> <from> <to> <tensors> <objects> <to read> <to write>
//       <memory> <lanes> <files kept> <bytes kept>        (in the same line)
//   file <bytes> <name>
//   ...
//   dropped <name>
//   ...
//   dropped_metadata <key>
//   ...
//   dropped_config <key>
//   ...
//   not_copied <file>
//   ...
//   warning <text>
//   ...
//   checked <CRCs> <digests> <bytes> <items unchecked> <bytes of them>
//   loss <dtype> <number of elements> <name>
//   ...
//
// "checked" is present if the source was checked. Older records lack the lines
// "beyond" and those from "dropped_metadata" on. Numbers are decimal,
// fingerprints and digests hexadecimal, names escaped.
#include "dcp/checkpoint/convert/convert_journal.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/record_words.h"
#include "dcp/checkpoint/destination/store_destination.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/file/relative_path.h"

namespace dcp {
namespace {

constexpr absl::string_view kVersion = "1";

std::string Hex(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

using Lines = absl::Span<const absl::string_view>;

absl::StatusOr<JournaledRun> ParsePlan(Lines lines) {
  JournaledRun run;
  run.own.ran_before = true;
  RecordWords words(lines[0]);
  uint32_t kind = 0;
  uint32_t made = 0;
  words.Expect(words.Next() == "plan");
  words.Expect(words.Next() == kVersion);
  words.HexNumber(run.fingerprint);
  words.Number(kind);
  words.Number(made);
  run.own.id = std::string(words.Next());
  run.index_before = std::string(words.Next());
  words.Expect(kind <= static_cast<uint32_t>(Destination::Kind::kFolders) &&
               made <= 1 && !run.own.id.empty());
  DCP_RETURN_IF_ERROR(words.status());
  run.kind = static_cast<Destination::Kind>(kind);
  run.own.made_directory = made == 1;
  for (const absl::string_view line : lines.subspan(1)) {
    RecordWords name(line);
    name.Expect(name.Next() == "name");
    name.Name(run.own.names.emplace_back());
    // The name is used to find, and remove, a file in the destination.
    name.Expect(CheckRelativePath(run.own.names.back()).ok());
    DCP_RETURN_IF_ERROR(name.status());
  }
  return run;
}

absl::Status ParseFile(Lines lines, JournaledRun& run) {
  RecordWords words(lines[0]);
  uint32_t file = 0;
  words.Expect(words.Next() == "file");
  words.Number(file);
  words.Expect(file < run.own.names.size());
  DCP_RETURN_IF_ERROR(words.status());
  WrittenFile& written = run.files[file];
  written = WrittenFile();
  for (const absl::string_view line : lines.subspan(1)) {
    RecordWords numbers(line);
    if (absl::StartsWith(line, "beyond ")) {
      numbers.Next();
      NumBeyond& beyond = written.num_beyond.emplace_back();
      numbers.Number(beyond.payload);
      numbers.Number(beyond.count);
      DCP_RETURN_IF_ERROR(numbers.status());
      continue;
    }
    ChunkDigest& digest = written.digests.emplace_back();
    digest.file = run.own.names[file];
    numbers.Number(digest.offset);
    numbers.Number(digest.length);
    numbers.HexNumber(digest.digest);
    DCP_RETURN_IF_ERROR(numbers.status());
  }
  return absl::OkStatus();
}

// Parses a line of a commit after the first.
absl::Status ParseResult(absl::string_view line, ConvertPlan& plan) {
  RecordWords words(line);
  const absl::string_view what = words.Next();
  if (what == "file") {
    words.Number(plan.files.emplace_back().bytes);
    words.Name(plan.files.back().name);
  } else if (what == "dropped") {
    words.Name(plan.dropped.emplace_back());
  } else if (what == "dropped_metadata") {
    words.Name(plan.dropped_metadata.emplace_back());
  } else if (what == "code_left_out") {
    words.Name(plan.code_left_out.emplace_back());
  } else if (what == "dropped_config") {
    words.Name(plan.dropped_config.emplace_back());
  } else if (what == "not_copied") {
    words.Name(plan.not_copied.emplace_back());
  } else if (what == "warning") {
    words.Name(plan.warnings.emplace_back());
  } else if (what == "checked") {
    SourceCheckReport& check = plan.check;
    check.checked = true;
    words.Number(check.num_crcs_checked);
    words.Number(check.num_digests_checked);
    words.Number(check.bytes_checked);
    words.Number(check.num_items_unchecked);
    words.Number(check.bytes_unchecked);
  } else {
    words.Expect(what == "loss");
    CastLoss& loss = plan.cast_losses.emplace_back();
    words.Type(loss.dtype);
    words.Number(loss.num_beyond);
    words.Name(loss.name);
  }
  return words.status();
}

absl::StatusOr<JournaledRun::Committed> ParseCommit(Lines lines) {
  JournaledRun::Committed commit;
  ConvertPlan& plan = commit.plan;
  RecordWords words(lines[0]);
  words.Expect(words.Next() == "commit");
  words.HexNumber(commit.digest);
  const absl::StatusOr<Format> from = ParseFormat(words.Next());
  const absl::StatusOr<Format> to = ParseFormat(words.Next());
  words.Expect(from.ok() && to.ok());
  words.Number(plan.num_tensors);
  words.Number(plan.num_objects);
  words.Number(plan.bytes_to_read);
  words.Number(plan.bytes_to_write);
  words.Number(plan.memory_bytes);
  words.Number(plan.num_lanes);
  words.Number(plan.num_files_kept);
  words.Number(plan.bytes_kept);
  DCP_RETURN_IF_ERROR(words.status());
  plan.from = *from;
  plan.to = *to;
  for (const absl::string_view line : lines.subspan(1)) {
    DCP_RETURN_IF_ERROR(ParseResult(line, plan));
  }
  return commit;
}

}  // namespace

std::string PlanRecord(const JournaledRun& run) {
  std::string record = absl::StrCat(
      "plan ", kVersion, " ", Hex(run.fingerprint), " ",
      static_cast<uint32_t>(run.kind), " ", run.own.made_directory ? 1 : 0, " ",
      run.own.id, " ", run.index_before, "\n");
  for (const std::string& name : run.own.names) {
    absl::StrAppend(&record, "name ", absl::CEscape(name), "\n");
  }
  return record;
}

std::string FileRecord(uint32_t number, const WrittenFile& file) {
  std::string record = absl::StrCat("file ", number, "\n");
  for (const ChunkDigest& digest : file.digests) {
    absl::StrAppend(&record, digest.offset, " ", digest.length, " ",
                    Hex(digest.digest), "\n");
  }
  for (const NumBeyond& beyond : file.num_beyond) {
    absl::StrAppend(&record, "beyond ", beyond.payload, " ", beyond.count,
                    "\n");
  }
  return record;
}

// A line "what name" for each.
void AppendNames(absl::string_view what, const std::vector<std::string>& names,
                 std::string& record) {
  for (const std::string& name : names) {
    absl::StrAppend(&record, what, " ", absl::CEscape(name), "\n");
  }
}

std::string CommitRecord(const JournaledRun::Committed& commit) {
  const ConvertPlan& plan = commit.plan;
  std::string record = absl::StrCat("commit ", Hex(commit.digest));
  absl::StrAppend(&record, " ", FormatName(plan.from), " ",
                  FormatName(plan.to));
  for (const uint64_t number :
       {plan.num_tensors, plan.num_objects, plan.bytes_to_read,
        plan.bytes_to_write, plan.memory_bytes, uint64_t{plan.num_lanes},
        plan.num_files_kept, plan.bytes_kept}) {
    absl::StrAppend(&record, " ", number);
  }
  record += '\n';
  for (const ConvertPlan::OutputFile& file : plan.files) {
    absl::StrAppend(&record, "file ", file.bytes, " ", absl::CEscape(file.name),
                    "\n");
  }
  AppendNames("dropped", plan.dropped, record);
  AppendNames("dropped_metadata", plan.dropped_metadata, record);
  AppendNames("code_left_out", plan.code_left_out, record);
  AppendNames("dropped_config", plan.dropped_config, record);
  AppendNames("not_copied", plan.not_copied, record);
  AppendNames("warning", plan.warnings, record);
  const SourceCheckReport& check = plan.check;
  if (check.checked) {
    absl::StrAppend(&record, "checked ", check.num_crcs_checked, " ",
                    check.num_digests_checked, " ", check.bytes_checked, " ",
                    check.num_items_unchecked, " ");
    absl::StrAppend(&record, check.bytes_unchecked, "\n");
  }
  for (const CastLoss& loss : plan.cast_losses) {
    absl::StrAppend(&record, "loss ", TorchName(loss.dtype), " ",
                    loss.num_beyond, " ", absl::CEscape(loss.name), "\n");
  }
  return record;
}

absl::StatusOr<std::optional<JournaledRun>> ParseConvertRecords(
    absl::Span<const std::string> records) {
  std::optional<JournaledRun> run;
  for (const std::string& record : records) {
    absl::string_view text = record;
    if (!absl::ConsumeSuffix(&text, "\n")) return MalformedRecord(text);
    const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    if (absl::StartsWith(text, "plan ")) {
      DCP_ASSIGN_OR_RETURN(run, ParsePlan(lines));
    } else if (!run.has_value()) {
      return MalformedRecord(text);
    } else if (absl::StartsWith(text, "commit ")) {
      DCP_ASSIGN_OR_RETURN(run->commit, ParseCommit(lines));
    } else {
      DCP_RETURN_IF_ERROR(ParseFile(lines, *run));
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
  if (run.kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(const std::string now, IndexDigest(fs, dst));
    return now == Hex(run.commit->digest);
  }
  if (!fs.TraitsAt(dst).has_rename) {
    return StoreDestination::HasAppeared(fs, dst, run.kind, run.own);
  }
  const absl::StatusOr<FileInfo> staging =
      fs.Stat(Destination::StagingPath(dst, run.kind, run.own.id));
  if (absl::IsNotFound(staging.status())) return true;
  DCP_RETURN_IF_ERROR(staging.status());
  if (run.kind == Destination::Kind::kFile) return false;
  if (run.kind == Destination::Kind::kFolders) {
    // Exchanged with the empty directory that it replaced.
    const absl::StatusOr<std::vector<DirectoryEntry>> left =
        fs.List(Destination::StagingPath(dst, run.kind, run.own.id));
    return left.ok() && left->empty();
  }
  // The directories may have been exchanged: the digests at the destination are
  // then those of this run.
  const absl::StatusOr<std::string> digests =
      ReadFile(fs, JoinPath(dst, DigestsName("")), kMaxMetadataBytes,
               /*follow_symlinks=*/true);
  return digests.ok() && Xxh3Digest(AsBytes(*digests)) == run.commit->digest;
}

}  // namespace dcp
