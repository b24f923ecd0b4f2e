// SPDX-License-Identifier: Apache-2.0
// Tested by tests/dcp/checkpoint/verify/verify_test.cc.
#include "dcp/checkpoint/verify/range_checker.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/read/range_reader.h"

namespace dcp {

VerifyFinding RangeChecker::DamageFinding(const CheckedRange& range,
                                          std::string problem) const {
  return {.name = std::string(range.name),
          .file = checkpoint_.files().names()[range.file],
          .offset = range.offset,
          .problem = std::move(problem)};
}

void RangeChecker::Compare(const CheckedRange& range, uint32_t crc,
                           uint64_t digest, Outcome& outcome) const {
  outcome.num_bytes += range.length;
  if (range.crc.has_value()) {
    ++outcome.num_crcs;
    if (crc != *range.crc) {
      outcome.damages.push_back(DamageFinding(
          range, absl::StrFormat("CRC-32 of %d bytes is %08x, recorded %08x",
                                 range.length, crc, *range.crc)));
    }
  }
  if (range.digest.has_value()) {
    ++outcome.num_digests;
    if (digest != *range.digest) {
      outcome.damages.push_back(DamageFinding(
          range, absl::StrFormat("digest of %d bytes is %016x, recorded %016x",
                                 range.length, digest, *range.digest)));
    }
  }
}

void RangeChecker::Compare(const CheckedRange& range, ByteSpan bytes,
                           Outcome& outcome) const {
  Compare(range, range.crc.has_value() ? ExtendCrc32(0, bytes) : 0,
          range.digest.has_value() ? Xxh3Digest(bytes) : 0, outcome);
}

void RangeChecker::Add(Outcome outcome, uint32_t piece) {
  VerifyReport& found = found_[piece];
  found.bytes_checked += outcome.num_bytes;
  found.num_crcs_checked += outcome.num_crcs;
  found.num_digests_checked += outcome.num_digests;
  std::move(outcome.damages.begin(), outcome.damages.end(),
            std::back_inserter(found.findings));
}

void RangeChecker::AddRange(const CheckedRange& range, uint32_t piece) {
  if (pieces_.Wants(piece)) ranges_.push_back({range, piece});
}

absl::Status RangeChecker::Run(VerifyReport& report) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const RangeInPiece& a, const RangeInPiece& b) {
              return std::tie(a.piece, a.range.file, a.range.offset) <
                     std::tie(b.piece, b.range.file, b.range.offset);
            });
  DCP_RETURN_IF_ERROR(WithSide(DropUnreadable(), ErrorSide::kSource));
  std::vector<FileRange> stretches;
  stretches.reserve(ranges_.size());
  uint64_t bytes_to_read = 0;
  for (const auto& [range, piece] : ranges_) {
    bytes_to_read += range.length;
    stretches.push_back({range.file, range.offset, range.length});
  }
  // Bytes that were compared in memory with their item count as read.
  uint64_t bytes_compared = 0;
  for (const VerifyReport& found : found_) {
    bytes_compared += found.bytes_checked;
  }
  if (options_.stats != nullptr) options_.stats->bytes_read += bytes_compared;
  if (options_.on_plan != nullptr) {
    options_.on_plan(bytes_compared + bytes_to_read);
  }
  const absl::Status read = ReadRanges(
      fs_, checkpoint_.files(), stretches,
      {.memory_bytes = options_.memory_bytes,
       .stop = options_.stop,
       .stats = options_.stats},
      [&](size_t i, uint64_t begin, ByteSpan bytes) -> absl::Status {
        if (begin == 0) {
          DCP_RETURN_IF_ERROR(FinishBefore(ranges_[i].piece, report));
        }
        CheckStretch(ranges_[i], begin, bytes);
        return absl::OkStatus();
      });
  if (read.ok()) return FinishBefore(pieces_.size(), report);
  if (absl::IsDataLoss(read)) {
    DCP_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
  }
  return read;
}

// Finishes all pieces before this one: their bytes have been compared.
absl::Status RangeChecker::FinishBefore(uint32_t piece, VerifyReport& report) {
  for (; next_ < piece; ++next_) {
    if (!pieces_.Wants(next_)) continue;
    DCP_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
    report.Add(found_[next_]);
    if (options_.pieces == nullptr) continue;
    DCP_RETURN_IF_ERROR(options_.pieces->on_piece(next_, found_[next_]));
  }
  return absl::OkStatus();
}

// Ranges that reach past their file's end become findings and are not read.
absl::Status RangeChecker::DropUnreadable() {
  absl::Status trouble;
  std::erase_if(ranges_, [&](const RangeInPiece& checked) {
    const auto& [range, piece] = checked;
    const absl::Status status =
        checkpoint_.files().CheckRange(range.file, range.offset, range.length);
    if (status.ok()) return false;
    if (!IsAboutBytes(status)) trouble.Update(status);
    found_[piece].findings.push_back(
        DamageFinding(range, std::string(status.message())));
    return true;
  });
  return trouble;
}

void RangeChecker::CheckStretch(const RangeInPiece& checked, uint64_t begin,
                                ByteSpan bytes) {
  const CheckedRange& range = checked.range;
  if (begin == 0) {
    crc_ = 0;
    digest_.Reset();
  }
  if (range.crc.has_value()) crc_ = ExtendCrc32(crc_, bytes);
  if (range.digest.has_value()) digest_.Update(bytes);
  if (begin + bytes.size() < range.length) return;
  Outcome outcome;
  Compare(range, crc_, range.digest.has_value() ? digest_.Value() : 0, outcome);
  Add(std::move(outcome), checked.piece);
}

}  // namespace dcp
