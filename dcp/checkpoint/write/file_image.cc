// SPDX-License-Identifier: Apache-2.0
// Fills one output file, or a piece of one, and writes it.
//
// Tested by tests/dcp/checkpoint/write/image_transfer_test.cc.
//
// [Note: edges] Two machines may write neighbouring pieces of a file at the
// same time. Such pieces share a block of the disk, and a page of the cache,
// unless they happen to meet at the end of one. So the parts that a piece has
// in the first and the last block, less than edge_bytes_ each, are written byte
// by byte at the end, through the page cache. Everything between is whole
// blocks, which can be written directly.
#include "dcp/checkpoint/write/file_image.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {

FileImage::FileImage(Output& output, uint32_t index)
    : output_(output),
      spec_(output.files[index]),
      index_(index),
      is_shared_(false),
      first_part_(0),
      end_part_(layout().parts().size()),
      begin_offset_(0),
      end_offset_(layout().size()),
      next_offset_(0),
      next_part_(0) {
  crcs_.resize(layout().parts().size());
}

FileImage::FileImage(Output& output, const FilePiece& piece, uint32_t index)
    : output_(output),
      spec_(output.files[piece.file]),
      index_(index),
      is_shared_(true),
      first_part_(piece.first_part),
      end_part_(piece.end_part),
      begin_offset_(piece.offset),
      end_offset_(piece.offset + piece.length),
      next_offset_(piece.offset),
      next_part_(piece.first_part) {
  crcs_.resize(layout().parts().size());
}

void FileImage::Advance(uint64_t num_bytes) {
  next_offset_ += num_bytes;
  const std::vector<LayoutPart>& parts = layout().parts();
  while (next_part_ + 1 < parts.size() &&
         parts[next_part_].end() <= next_offset_) {
    ++next_part_;
  }
}

std::pair<uint32_t, double> FileImage::SequenceKey() const {
  const std::vector<LayoutPart>& parts = layout().parts();
  for (size_t i = next_part_; i < parts.size(); ++i) {
    if (parts[i].payload_length == 0) continue;
    const uint64_t begin = parts[i].payload_offset();
    const double done = next_offset_ <= begin
                            ? 0
                            : static_cast<double>(next_offset_ - begin) /
                                  static_cast<double>(parts[i].payload_length);
    return {output_.payloads[parts[i].payload].entry, done};
  }
  return {UINT32_MAX, 1};
}

void FileImage::FillLiteral(size_t part, uint64_t begin, MutableByteSpan dst) {
  if (literal_part_ != part) {
    literal_ = spec_.literal(part, crcs_);
    literal_part_ = part;
    DCP_CHECK(literal_.size() == layout().parts()[part].literal_length,
              layout().name(), " part ", part);
  }
  std::memcpy(dst.data(), literal_.data() + begin, dst.size());
}

void FileImage::AddChecksums(size_t part, uint64_t begin, ByteSpan bytes) {
  if (output_.needs_crcs) crcs_[part] = ExtendCrc32(crcs_[part], bytes);
  if (!output_.needs_digests) return;
  if (begin == 0) digest_.Reset();
  digest_.Update(bytes);
  const LayoutPart& filled = layout().parts()[part];
  if (begin + bytes.size() < filled.payload_length) return;
  digests_.push_back({.file = layout().name(),
                      .offset = filled.payload_offset(),
                      .length = filled.payload_length,
                      .digest = digest_.Value()});
}

absl::Status FileImage::Create(FileSystem& fs, Destination& destination,
                               DirectMode direct, uint64_t block_bytes) {
  const uint64_t size = layout().size();
  path_ = destination.FilePath(layout().name());
  const FileSystemTraits traits = fs.TraitsAt(path_);
  writes_head_ = !is_shared_ && spec_.head != nullptr && !traits.in_order;
  if (writes_head_ && !traits.has_rename) {
    const uint64_t head_bytes = layout().parts()[0].literal_length;
    held_bytes_ = (head_bytes + block_bytes - 1) / block_bytes * block_bytes;
    held_.resize(std::min(held_bytes_, size));
  }
  DCP_ASSIGN_OR_RETURN(file_, destination.CreateFile(
                                  layout().name(), {.size = size,
                                                    .direct = direct,
                                                    .block_bytes = block_bytes,
                                                    .is_shared = is_shared_}));
  if (is_shared_ && traits.has_rename) HoldEdges();
  return absl::OkStatus();
}

// See [Note: edges].
void FileImage::HoldEdges() {
  edge_bytes_ = std::max(edge_bytes_, file_.alignment);
  const uint64_t first = AlignUp(begin_offset_, edge_bytes_);
  if (first > begin_offset_) {
    held_bytes_ = first;
    held_.resize(std::min(first, end_offset_) - begin_offset_);
  }
  const uint64_t last = AlignDown(end_offset_, edge_bytes_);
  if (last >= first && last < end_offset_) {
    back_begin_ = last;
    back_.resize(end_offset_ - last);
  }
}

uint64_t FileImage::BytesInBlock(uint64_t num_bytes) const {
  const uint64_t offset = next_offset_;
  num_bytes = std::min(num_bytes, end_offset_ - offset);
  if (!is_shared_) return num_bytes;
  // A block ends where a whole file's block does, so that no element lies in
  // two of them.
  const uint64_t into = offset % edge_bytes_;
  if (into != 0) return std::min(num_bytes, edge_bytes_ - into);
  return offset < back_begin_ ? std::min(num_bytes, back_begin_ - offset)
                              : num_bytes;
}

void FileImage::Hold(uint64_t offset, ByteSpan bytes) {
  const bool is_back = offset >= back_begin_;
  const uint64_t begin = is_back ? back_begin_ : begin_offset_;
  std::copy(bytes.begin(), bytes.end(),
            (is_back ? back_ : held_).begin() +
                static_cast<ptrdiff_t>(offset - begin));
}

absl::Status FileImage::Close(FileSystem& fs) {
  return Annotate(CloseDurably(fs), path_,
                  " could not be made durable, so the checkpoint did not "
                  "appear; check where it is written to, and run again");
}

absl::Status FileImage::WriteHeld(FileSystem& fs) {
  if (is_shared_) {
    if (!held_.empty()) {
      DCP_RETURN_IF_ERROR(fs.Write(file_, begin_offset_, held_));
    }
    return back_.empty() ? absl::OkStatus()
                         : fs.Write(file_, back_begin_, back_);
  }
  if (!writes_head_) return absl::OkStatus();
  const std::string head = spec_.head(digests_);
  if (!held_.empty()) std::copy(head.begin(), head.end(), held_.begin());
  return fs.Write(file_, 0, held_.empty() ? AsBytes(head) : ByteSpan(held_));
}

absl::Status FileImage::CloseDurably(FileSystem& fs) {
  DCP_RETURN_IF_ERROR(WriteHeld(fs));
  // The last block of a direct file was padded.
  if (!is_shared_) {
    DCP_RETURN_IF_ERROR(fs.Truncate(file_, layout().size()));
  }
  DCP_RETURN_IF_ERROR(fs.Sync(file_));
  return fs.Close(std::exchange(file_, File()));
}

void FileImage::Abandon(FileSystem& fs) {
  if (file_.handle >= 0) fs.Close(std::exchange(file_, File())).IgnoreError();
}

}  // namespace dcp
