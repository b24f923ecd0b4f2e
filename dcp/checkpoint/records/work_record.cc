// SPDX-License-Identifier: Apache-2.0
// Describes the text of plans and pieces; record_text.h has its form.
// Tested by tests/dcp/checkpoint/records/work_records_test.cc.
#include "dcp/checkpoint/records/work_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/records/record_text.h"
#include "dcp/format/file/relative_path.h"

namespace dcp {
namespace {

// File names contain it.
bool IsId(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c == '-' || absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
}

template <typename Text, typename Plan>
void DescribePlan(Text& text, Plan& plan) {
  text.Word(plan.id);
  text.Expect(IsId(plan.id));
  text.Enum(plan.kind, DestinationKind::kFolders);
  OptionalLine(text, "journaled", plan.journaled, [&text](auto& journaled) {
    text.Digest(journaled.fingerprint);
    text.Word(journaled.index_before);
    text.Line("made_directory", journaled.made_directory);
  });
  OptionalLine(text, "verify", plan.verify, [&text](auto& index) {
    text.Enum(index.format, Format::kTorch);
    text.Number(index.num_tensors);
    text.Number(index.num_objects);
    text.Number(index.num_chunks);
    text.Number(index.num_items);
    text.Number(index.num_items_checked);
  });
  EachLine(text, "file", plan.files, [&text](auto& name) {
    text.Name(name);
    // The name is used to find, and remove, a file at the destination.
    text.Expect(CheckRelativePath(name).ok());
  });
  EachLine(text, "piece", plan.pieces, [&](auto& piece) {
    text.Number(piece.file);
    text.Number(piece.first_part);
    text.Number(piece.end_part);
    text.Number(piece.offset);
    text.Number(piece.length);
    text.Expect(plan.verify.has_value() || piece.file < plan.files.size());
  });
}

template <typename Text, typename Part>
void DescribePart(Text& text, Part& part) {
  text.Number(part.file);
  text.Number(part.offset);
  text.Number(part.length);
  text.Expect(part.length <= UINT64_MAX - part.offset);
  text.Name(part.name);
  OptionalLine(text, "whole", part.crc, [&text](auto& crc) { text.Crc(crc); });
  std::vector<std::pair<uint64_t, uint32_t>> cells(part.cells.begin(),
                                                   part.cells.end());
  EachLine(text, "cell", cells, [&](auto& cell) {
    text.Number(cell.first);
    text.Expect(cell.first < part.length / kCheckedCellBytes + 1);
    text.Crc(cell.second);
  });
  if constexpr (Text::kReads) part.cells.insert(cells.begin(), cells.end());
}

template <typename Text, typename Report>
void DescribeVerified(Text& text, Report& report) {
  text.Number(report.num_crcs_checked);
  text.Number(report.num_digests_checked);
  text.Number(report.bytes_checked);
  text.Number(report.num_items_unchecked);
  text.Number(report.num_items_missed);
  EachLine(text, "finding", report.findings, [&text](auto& finding) {
    bool present = true;
    text.Number(finding.offset);
    text.Name(finding.file);
    text.Expect(text.Line("of", present));
    text.Name(finding.name);
    text.Expect(text.Line("problem", present));
    text.Name(finding.problem);
  });
}

template <typename Text, typename Record>
void DescribePiece(Text& text, Record& record) {
  text.Number(record.number);
  text.Number(record.bytes);
  text.Number(record.milliseconds);
  text.Name(record.host);
  EachLine(text, "digest", record.written.digests, [&text](auto& digest) {
    text.Number(digest.offset);
    text.Number(digest.length);
    text.Digest(digest.digest);
  });
  EachLine(text, "crc", record.written.crcs,
           [&text](auto& crc) { text.Crc(crc); });
  EachLine(text, "beyond", record.written.num_beyond, [&text](auto& beyond) {
    text.Number(beyond.payload);
    text.Number(beyond.count);
  });
  bool is_hidden = !record.upload.empty();
  if (text.Line("upload", is_hidden)) text.Name(record.upload);
  CheckLine(text, record.check);
  EachLine(text, "with", record.moved_with,
           [&text](auto& piece) { text.Number(piece); });
  EachLine(text, "part", record.parts,
           [&text](auto& part) { DescribePart(text, part); });
  OptionalLine(text, "verified", record.verified,
               [&text](auto& report) { DescribeVerified(text, report); });
}

}  // namespace

std::string WritePlanRecord(const WorkPlan& plan) {
  RecordWriter writer("plan");
  DescribePlan(writer, plan);
  return writer.text();
}

absl::StatusOr<WorkPlan> ParsePlanRecord(absl::string_view text) {
  DCP_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(text, "plan"));
  WorkPlan plan;
  DescribePlan(reader, plan);
  DCP_RETURN_IF_ERROR(reader.status());
  return plan;
}

std::string WritePieceRecord(const PieceRecord& record) {
  RecordWriter writer("piece");
  DescribePiece(writer, record);
  return writer.text();
}

absl::StatusOr<PieceRecord> ParsePieceRecord(absl::string_view text,
                                             const WorkPlan& plan) {
  DCP_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(text, "piece"));
  PieceRecord record;
  DescribePiece(reader, record);
  reader.Expect(record.number < plan.pieces.size());
  DCP_RETURN_IF_ERROR(reader.status());
  if (plan.verify.has_value()) return record;
  for (ChunkDigest& digest : record.written.digests) {
    digest.file = plan.files[plan.pieces[record.number].file];
  }
  return record;
}

}  // namespace dcp
