// The directory has
//
//   plan       tessera-work 1
//              plan <id> <kind>, or of a verify: verify <id> <format>
//                <tensors> <objects> <chunks> <items> <items in the sample>
//              file <name>
//              piece <file> <first part> <end part> <offset> <length>
//              end
//   <number>   tessera-piece 1
//              wrote <bytes> <milliseconds> <host>
//              digest <offset> <length> <digest>
//              crc <crc>
//              beyond <payload> <number of elements>
//              upload <id>
//              checked <CRCs> <digests> <bytes> <unchecked> <bytes of them>
//              finding <offset> <file>, with the lines that follow:
//              of <name>
//              problem <text>
//              end
//
// with any number of lines of each of the middle kinds. Names and texts are
// escaped, digests and CRCs hexadecimal. A file is written under a name that no
// other worker uses, synced, and renamed, so that a record that is there is
// whole; in an object store it is put.
#include "dcp/checkpoint/convert/work_records.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/record_words.h"
#include "dcp/checkpoint/write/destination_names.h"
#include "dcp/checkpoint/write/save_id.h"
#include "dcp/format/relative_path.h"

namespace dcp {
namespace {

constexpr absl::string_view kPlanName = "plan";
constexpr absl::string_view kPlanMagic = "tessera-work 1";
constexpr absl::string_view kPieceMagic = "tessera-piece 1";
constexpr absl::string_view kBesideSuffix = "work";
// How often new files may appear in a directory that is being removed.
constexpr int kMaxRemovals = 100;

// The lines between the first, which must be `magic`, and the last, "end".
absl::StatusOr<std::vector<absl::string_view>> LinesOf(
    absl::string_view text, absl::string_view magic) {
  if (!absl::ConsumeSuffix(&text, "\nend\n")) return MalformedRecord(text);
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines[0] != magic) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the record begins with '", lines[0].substr(0, 100), "' instead of '",
        magic, "': another version of this program wrote it"));
  }
  lines.erase(lines.begin());
  return lines;
}

bool IsId(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
}

absl::Status ParsePieceLine(absl::string_view line, absl::string_view file,
                            PieceRecord& record) {
  RecordWords words(line);
  const absl::string_view what = words.Next();
  if (what == "wrote") {
    words.Number(record.bytes);
    words.Number(record.milliseconds);
    words.Name(record.host);
  } else if (what == "digest") {
    ChunkDigest& digest = record.written.digests.emplace_back();
    digest.file = std::string(file);
    words.Number(digest.offset);
    words.Number(digest.length);
    words.HexNumber(digest.digest);
  } else if (what == "crc") {
    uint64_t crc = 0;
    words.HexNumber(crc);
    words.Expect(crc <= UINT32_MAX);
    record.written.crcs.push_back(static_cast<uint32_t>(crc));
  } else if (what == "upload") {
    words.Name(record.upload);
  } else if (what == "beyond") {
    NumBeyond& beyond = record.written.num_beyond.emplace_back();
    words.Number(beyond.payload);
    words.Number(beyond.count);
  } else if (what == "finding") {
    VerifyFinding& finding = record.findings.emplace_back();
    words.Number(finding.offset);
    words.Name(finding.file);
  } else if ((what == "of" || what == "problem") && !record.findings.empty()) {
    VerifyFinding& finding = record.findings.back();
    words.Name(what == "of" ? finding.name : finding.problem);
  } else {
    words.Expect(what == "checked");
    SourceCheckReport& check = record.check;
    check.checked = true;
    words.Number(check.num_crcs_checked);
    words.Number(check.num_digests_checked);
    words.Number(check.bytes_checked);
    words.Number(check.num_items_unchecked);
    words.Number(check.bytes_unchecked);
  }
  return words.status();
}

VerifyReport IndexIn(RecordWords& words) {
  VerifyReport index;
  uint32_t format = 0;
  words.Number(format);
  words.Expect(format <= static_cast<uint32_t>(Format::kTorch));
  index.format = static_cast<Format>(format);
  words.Number(index.num_tensors);
  words.Number(index.num_objects);
  words.Number(index.num_chunks);
  words.Number(index.num_items);
  words.Number(index.num_items_checked);
  return index;
}

}  // namespace

std::string HostName() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  return host;
}

std::string WritePlanRecord(const WorkPlan& plan) {
  std::string text = absl::StrCat(kPlanMagic, "\n");
  if (plan.verify.has_value()) {
    const VerifyReport& index = *plan.verify;
    absl::StrAppend(&text, "verify ", plan.id, " ",
                    static_cast<uint32_t>(index.format), " ");
    absl::StrAppend(&text, index.num_tensors, " ", index.num_objects, " ",
                    index.num_chunks, " ");
    absl::StrAppend(&text, index.num_items, " ", index.num_items_checked, "\n");
  } else {
    absl::StrAppend(&text, "plan ", plan.id, " ",
                    static_cast<uint32_t>(plan.kind), "\n");
  }
  for (const std::string& name : plan.files) {
    absl::StrAppend(&text, "file ", absl::CEscape(name), "\n");
  }
  for (const FilePiece& piece : plan.pieces) {
    absl::StrAppend(&text, "piece ", piece.file, " ", piece.first_part, " ",
                    piece.end_part, " ", piece.offset, " ");
    absl::StrAppend(&text, piece.length, "\n");
  }
  return absl::StrCat(text, "end\n");
}

absl::StatusOr<WorkPlan> ParsePlanRecord(absl::string_view text) {
  DCP_ASSIGN_OR_RETURN(const std::vector<absl::string_view> lines,
                       LinesOf(text, kPlanMagic));
  WorkPlan plan;
  for (const absl::string_view line : lines) {
    RecordWords words(line);
    const absl::string_view what = words.Next();
    if (what == "plan" || what == "verify") {
      words.Expect(plan.id.empty());
      plan.id = std::string(words.Next());
      // It becomes a part of names of files.
      words.Expect(IsId(plan.id));
      uint32_t kind = 0;
      if (what == "verify") {
        plan.verify = IndexIn(words);
      } else {
        words.Number(kind);
      }
      words.Expect(kind <= static_cast<uint32_t>(DestinationKind::kFolders));
      plan.kind = static_cast<DestinationKind>(kind);
    } else if (what == "file") {
      words.Name(plan.files.emplace_back());
      // The name is used to find, and remove, a file at the destination.
      words.Expect(CheckRelativePath(plan.files.back()).ok());
    } else {
      words.Expect(what == "piece");
      FilePiece& piece = plan.pieces.emplace_back();
      words.Number(piece.file);
      words.Number(piece.first_part);
      words.Number(piece.end_part);
      words.Number(piece.offset);
      words.Number(piece.length);
      words.Expect(plan.verify.has_value() || piece.file < plan.files.size());
    }
    DCP_RETURN_IF_ERROR(words.status());
  }
  if (plan.id.empty()) return MalformedRecord(text);
  return plan;
}

std::string WritePieceRecord(const PieceRecord& record) {
  std::string text =
      absl::StrCat(kPieceMagic, "\nwrote ", record.bytes, " ",
                   record.milliseconds, " ", absl::CEscape(record.host));
  absl::StrAppend(&text, "\n");
  for (const ChunkDigest& digest : record.written.digests) {
    absl::StrAppend(&text, "digest ", digest.offset, " ", digest.length, " ",
                    absl::Hex(digest.digest, absl::kZeroPad16), "\n");
  }
  for (const uint32_t crc : record.written.crcs) {
    absl::StrAppend(&text, "crc ", absl::Hex(crc), "\n");
  }
  for (const NumBeyond& beyond : record.written.num_beyond) {
    absl::StrAppend(&text, "beyond ", beyond.payload, " ", beyond.count, "\n");
  }
  if (!record.upload.empty()) {
    absl::StrAppend(&text, "upload ", absl::CEscape(record.upload), "\n");
  }
  const SourceCheckReport& check = record.check;
  if (check.checked) {
    absl::StrAppend(&text, "checked ", check.num_crcs_checked, " ",
                    check.num_digests_checked, " ", check.bytes_checked, " ");
    absl::StrAppend(&text, check.num_items_unchecked, " ",
                    check.bytes_unchecked, "\n");
  }
  for (const VerifyFinding& finding : record.findings) {
    absl::StrAppend(&text, "finding ", finding.offset, " ",
                    absl::CEscape(finding.file), "\n");
    absl::StrAppend(&text, "of ", absl::CEscape(finding.name), "\nproblem ",
                    absl::CEscape(finding.problem), "\n");
  }
  return absl::StrCat(text, "end\n");
}

absl::StatusOr<PieceRecord> ParsePieceRecord(absl::string_view text,
                                             absl::string_view file) {
  DCP_ASSIGN_OR_RETURN(const std::vector<absl::string_view> lines,
                       LinesOf(text, kPieceMagic));
  PieceRecord record;
  for (const absl::string_view line : lines) {
    DCP_RETURN_IF_ERROR(ParsePieceLine(line, file, record));
  }
  return record;
}

std::string WorkRecords::DirectoryOf(absl::string_view path,
                                     DestinationKind kind,
                                     absl::string_view id) {
  const std::string plain = WithoutTrailingSlashes(path);
  return kind == DestinationKind::kDcpDirectory
             ? JoinPath(plain, WorkRecordsName(id))
             : SiblingPath(plain, id, kBesideSuffix);
}

absl::StatusOr<std::vector<std::string>> WorkRecords::Find(
    FileSystem& fs, absl::string_view path) {
  const std::string plain = WithoutTrailingSlashes(path);
  std::vector<std::string> found;
  const absl::StatusOr<std::vector<DirectoryEntry>> inside = fs.List(plain);
  if (inside.ok()) {
    for (const DirectoryEntry& entry : *inside) {
      if (entry.kind == FileKind::kDirectory && IsWorkRecordsName(entry.name)) {
        found.push_back(JoinPath(plain, entry.name));
      }
    }
  }
  const std::string parent = ParentDirectory(plain);
  const absl::StatusOr<std::vector<DirectoryEntry>> beside = fs.List(parent);
  if (absl::IsNotFound(beside.status()) && !fs.TraitsOf(path).has_rename) {
    return found;  // folders of a store need not be made
  }
  DCP_RETURN_IF_ERROR(beside.status());
  for (const DirectoryEntry& entry : *beside) {
    if (entry.kind == FileKind::kDirectory &&
        IsSiblingName(entry.name, BaseName(plain), kBesideSuffix)) {
      found.push_back(JoinPath(parent, entry.name));
    }
  }
  return found;
}

absl::Status WorkRecords::CheckNoOthers(absl::string_view path) const {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                       Find(fs_, path));
  for (const std::string& directory : directories) {
    if (BaseName(directory) == BaseName(directory_)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directory,
        " belongs to workers with another plan: their source, options or "
        "version differ from those of this worker, whose records are ",
        BaseName(directory_),
        "; compare what both were told to do, or discard the other work"));
  }
  return absl::OkStatus();
}

absl::Status WorkRecords::Begin(const WorkPlan& plan) {
  const std::string text = WritePlanRecord(plan);
  absl::Status made = fs_.MakeDirectory(directory_);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  const std::string path = JoinPath(directory_, kPlanName);
  if (absl::IsNotFound(fs_.Stat(path).status())) {
    DCP_RETURN_IF_ERROR(Put(path, text));
    DCP_RETURN_IF_ERROR(fs_.SyncDirectory(ParentDirectory(directory_)));
  }
  DCP_ASSIGN_OR_RETURN(const std::string there,
                       ReadFile(fs_, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  if (there == text) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is not the plan of this worker, although both have the id ",
      plan.id, ": use the same version of dcp-convert for all workers"));
}

absl::StatusOr<WorkPlan> WorkRecords::ReadPlan() {
  const std::string path = JoinPath(directory_, kPlanName);
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs_, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  absl::StatusOr<WorkPlan> plan = ParsePlanRecord(text);
  if (!plan.ok()) return Annotate(plan.status(), path);
  return plan;
}

std::string WorkRecords::PathOf(uint32_t piece) const {
  return JoinPath(directory_, absl::StrCat(piece));
}

absl::StatusOr<bool> WorkRecords::Has(uint32_t piece) {
  const absl::StatusOr<File> file =
      fs_.OpenForRead(PathOf(piece), DirectMode::kOff,
                      /*follow_symlinks=*/false);
  if (absl::IsNotFound(file.status())) return false;
  DCP_RETURN_IF_ERROR(file.status());
  DCP_RETURN_IF_ERROR(fs_.Close(*file));
  return true;
}

absl::StatusOr<std::vector<uint32_t>> WorkRecords::Without(
    std::vector<uint32_t> pieces) {
  std::vector<std::atomic<bool>> done(pieces.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(pieces.size(), kRecordsAtOnce, [&](size_t i) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(done[i], Has(pieces[i]));
        return absl::OkStatus();
      }));
  size_t i = 0;
  std::erase_if(pieces, [&](uint32_t) { return done[i++].load(); });
  return pieces;
}

absl::Status WorkRecords::Publish(const std::string& path,
                                  absl::string_view bytes) {
  const std::string temporary = JoinPath(
      directory_, absl::StrCat(BaseName(path), ".", NewSaveId(), ".tmp"));
  DCP_RETURN_IF_ERROR(WriteFile(fs_, temporary, bytes));
  DCP_RETURN_IF_ERROR(fs_.Rename(temporary, path));
  return fs_.SyncDirectory(ParentDirectory(path));
}

// In an object store, those who read it must not see it replaced.
absl::Status WorkRecords::Put(const std::string& path,
                              absl::string_view bytes) {
  if (fs_.TraitsOf(path).has_rename) return Publish(path, bytes);
  const absl::Status put = fs_.Replace(path, bytes, std::nullopt);
  return absl::IsAlreadyExists(put) ? absl::OkStatus() : put;
}

absl::Status WorkRecords::Write(uint32_t piece, const PieceRecord& record) {
  return Put(PathOf(piece), WritePieceRecord(record));
}

absl::StatusOr<PieceRecord> WorkRecords::Read(uint32_t piece,
                                              absl::string_view file) {
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs_, PathOf(piece), kMaxMetadataBytes,
                                /*follow_symlinks=*/false));
  absl::StatusOr<PieceRecord> record = ParsePieceRecord(text, file);
  if (!record.ok()) return Annotate(record.status(), PathOf(piece));
  return record;
}

absl::StatusOr<bool> WorkRecords::HasAll(uint32_t num_pieces) {
  std::atomic<bool> has_all = true;
  if (fs_.TraitsOf(directory_).has_rename) {
    // A list of a shared file system may be old.
    DCP_RETURN_IF_ERROR(
        ParallelFor(num_pieces, kRecordsAtOnce, [&](size_t i) -> absl::Status {
          if (!has_all) return absl::OkStatus();
          DCP_ASSIGN_OR_RETURN(const bool has, Has(static_cast<uint32_t>(i)));
          if (!has) has_all = false;
          return absl::OkStatus();
        }));
  } else {
    DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         fs_.List(directory_));
    absl::flat_hash_set<std::string> names;
    for (const DirectoryEntry& entry : entries) names.insert(entry.name);
    for (uint32_t i = 0; i < num_pieces; ++i) {
      if (!names.contains(absl::StrCat(i))) has_all = false;
    }
  }
  // Or the records are gone, because the work has ended.
  if (!has_all) {
    DCP_RETURN_IF_ERROR(fs_.Stat(JoinPath(directory_, kPlanName)).status());
  }
  return has_all.load();
}

absl::Status WorkRecords::Forget(uint32_t piece) {
  absl::Status removed = fs_.Remove(PathOf(piece));
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  return fs_.SyncDirectory(directory_);
}

absl::Status WorkRecords::Remove() {
  for (int i = 0; i < kMaxRemovals; ++i) {
    const absl::StatusOr<std::vector<DirectoryEntry>> entries =
        fs_.List(directory_);
    if (absl::IsNotFound(entries.status())) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(entries.status());
    // Without it, a worker that adds a record knows that the work has ended.
    absl::Status plan = fs_.Remove(JoinPath(directory_, kPlanName));
    if (!plan.ok() && !absl::IsNotFound(plan)) return plan;
    DCP_RETURN_IF_ERROR(
        ParallelFor(entries->size(), kRecordsAtOnce, [&](size_t k) {
          const std::string& name = (*entries)[k].name;
          if (name == kPlanName) return absl::OkStatus();
          absl::Status gone = fs_.Remove(JoinPath(directory_, name));
          return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
        }));
    absl::Status removed = fs_.RemoveDirectory(directory_);
    if (removed.ok() || absl::IsNotFound(removed)) return absl::OkStatus();
    // Another worker has just added a record.
    if (!absl::IsFailedPrecondition(removed)) return removed;
  }
  return absl::UnavailableError(absl::StrCat(
      directory_, " cannot be removed: other workers keep adding records"));
}

}  // namespace dcp
