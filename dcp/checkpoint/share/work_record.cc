// SPDX-License-Identifier: Apache-2.0
// Tested by tests/dcp/checkpoint/share/work_records_test.cc.
//
// The texts:
//
//   plan       tessera-work 1
//              plan <id> <kind>, or of a verify: verify <id> <format>
//                <tensors> <objects> <chunks> <items> <items in the sample>
//              file <name>
//              piece <file> <first part> <end part> <offset> <length>
//              end
//   <number>   tessera-piece 2
//              wrote <bytes> <milliseconds> <host>
//              digest <offset> <length> <digest>
//              crc <crc>
//              beyond <payload> <number of elements>
//              upload <id>
//              checked <CRCs> <digests> <bytes> <unchecked> <bytes of them>
//              part <file> <offset> <length> <CRC, or -> <name>, with the
//              cells: cell <number> <contribution to the CRC> with <number of a
//              piece> missed <items> finding <offset> <file>, with the lines
//              that follow: of <name> problem <text> end
//
// with any number of lines of each of the middle kinds. Names and texts are
// escaped, digests and CRCs hexadecimal.
#include "dcp/checkpoint/share/work_record.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/record_words.h"
#include "dcp/format/file/relative_path.h"

namespace dcp {
namespace {

constexpr absl::string_view kPlanMagic = "tessera-work 1";
constexpr absl::string_view kPieceMagic = "tessera-piece 2";

// The lines between the first, which must be `magic`, and the last, "end".
absl::StatusOr<std::vector<absl::string_view>> RecordLines(
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

uint32_t Crc(RecordWords& words) {
  uint64_t crc = 0;
  words.HexNumber(crc);
  words.Expect(crc <= UINT32_MAX);
  return static_cast<uint32_t>(crc);
}

void ParsePart(RecordWords& words, StretchPart& part) {
  words.Number(part.file);
  words.Number(part.offset);
  words.Number(part.length);
  words.Expect(part.length <= UINT64_MAX - part.offset);
  if (words.NextIf("-")) {
    part.crc = std::nullopt;
  } else {
    part.crc = Crc(words);
  }
  words.Name(part.name);
}

void ParseCell(RecordWords& words, StretchPart& part) {
  uint64_t number = 0;
  words.Number(number);
  words.Expect(number < part.length / kCheckedCellBytes + 1);
  part.cells[number] = Crc(words);
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
    record.written.crcs.push_back(Crc(words));
  } else if (what == "upload") {
    words.Name(record.upload);
  } else if (what == "with") {
    words.Number(record.moved_with.emplace_back());
  } else if (what == "part") {
    ParsePart(words, record.parts.emplace_back());
  } else if (what == "cell" && !record.parts.empty()) {
    ParseCell(words, record.parts.back());
  } else if (what == "beyond") {
    NumBeyond& beyond = record.written.num_beyond.emplace_back();
    words.Number(beyond.payload);
    words.Number(beyond.count);
  } else if (what == "finding") {
    VerifyFinding& finding = record.findings.emplace_back();
    words.Number(finding.offset);
    words.Name(finding.file);
  } else if (what == "missed") {
    words.Number(record.num_items_missed);
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
                       RecordLines(text, kPlanMagic));
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
  for (const uint32_t piece : record.moved_with) {
    absl::StrAppend(&text, "with ", piece, "\n");
  }
  for (const StretchPart& part : record.parts) {
    absl::StrAppend(&text, "part ", part.file, " ", part.offset, " ",
                    part.length, " ");
    absl::StrAppend(
        &text, part.crc.has_value() ? absl::StrCat(absl::Hex(*part.crc)) : "-",
        " ", absl::CEscape(part.name), "\n");
    for (const auto& [number, contribution] : part.cells) {
      absl::StrAppend(&text, "cell ", number, " ", absl::Hex(contribution),
                      "\n");
    }
  }
  if (record.num_items_missed > 0) {
    absl::StrAppend(&text, "missed ", record.num_items_missed, "\n");
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
                       RecordLines(text, kPieceMagic));
  PieceRecord record;
  for (const absl::string_view line : lines) {
    DCP_RETURN_IF_ERROR(ParsePieceLine(line, file, record));
  }
  return record;
}

}  // namespace dcp
