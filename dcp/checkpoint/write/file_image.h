// SPDX-License-Identifier: Apache-2.0
// FileImage: one output file, or a piece of one, on the way to the disk or into
// a stream: how much is planned, the checksums of the filled bytes, and the
// file itself once it is created. Planning and filling go through the file in
// order, filling behind planning. Used by one thread.
#ifndef DCP_CHECKPOINT_WRITE_FILE_IMAGE_H_
#define DCP_CHECKPOINT_WRITE_FILE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/file_layout.h"
#include "dcp/plan/pieces.h"

namespace dcp {

class FileImage {
 public:
  // The file with number `index` in `output`, which must outlive this.
  FileImage(Output& output, uint32_t index);
  // Only a piece of a file, which others write at the same time. `index` is the
  // piece's number.
  FileImage(Output& output, const FilePiece& piece, uint32_t index);

  uint32_t index() const { return index_; }
  const FileLayout& layout() const { return spec_.layout; }

  // Planning: where the next block to plan begins.
  uint64_t next_offset() const { return next_offset_; }
  bool planned() const { return next_offset_ >= end_offset_; }
  void Advance(uint64_t num_bytes);
  // How far planning is in the sequence of tensors: the tensor, and the planned
  // share of it. See [Note: interleaving].
  std::pair<uint32_t, double> SequenceKey() const;

  // Whether the block at `offset` is not written but held until Close. That is
  // so for an edge (see [Note: edges]), and for the head of the file, which is
  // made last, on a file system that cannot write twice.
  bool Holds(uint64_t offset) const {
    return offset < held_bytes_ || offset >= back_begin_;
  }
  void Hold(uint64_t offset, ByteSpan bytes);
  uint64_t num_held() const { return held_.size() + back_.size(); }
  // How many bytes, up to `num_bytes` from next_offset(), fit in one block.
  uint64_t BytesInBlock(uint64_t num_bytes) const;

  // Filling: writes a part's literal, starting at the literal's byte `begin`,
  // to `dst`.
  void FillLiteral(size_t part, uint64_t begin, MutableByteSpan dst);
  // `bytes` are in place; they begin at byte `begin` in the part's payload.
  // Adds them to the checksums that the output needs.
  void AddChecksums(size_t part, uint64_t begin, ByteSpan bytes);
  // The digests of the complete payloads.
  const std::vector<ChunkDigest>& digests() const { return digests_; }
  // The parts of the image, and the CRC-32 of their complete payloads if the
  // output needs them.
  size_t first_part() const { return first_part_; }
  size_t end_part() const { return end_part_; }
  absl::Span<const uint32_t> crcs() const {
    return absl::MakeConstSpan(crcs_).subspan(first_part_,
                                              end_part_ - first_part_);
  }

  // Creates the file at `destination`, written in whole blocks of `block_bytes`
  // if the file system does not rename. Close completes it, or this piece of
  // it, after everything is written: afterwards it is durable. Abandon ends it
  // in any state.
  absl::Status Create(FileSystem& fs, Destination& destination,
                      DirectMode direct, uint64_t block_bytes);
  absl::Status Close(FileSystem& fs);
  void Abandon(FileSystem& fs);
  const File& file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  absl::Status CloseDurably(FileSystem& fs);
  absl::Status WriteHeld(FileSystem& fs);
  void HoldEdges();

  const Output& output_;
  OutputFile& spec_;
  const uint32_t index_;
  const bool is_shared_;
  const size_t first_part_;
  const size_t end_part_;
  const uint64_t begin_offset_;
  const uint64_t end_offset_;
  uint64_t next_offset_;
  size_t next_part_;            // the part at next_offset_, or just before
  std::vector<uint32_t> crcs_;  // of the parts' payloads
  size_t literal_part_ = SIZE_MAX;
  std::string literal_;  // the literal at literal_part_
  Digest64 digest_;      // of the payload that is being filled
  std::vector<ChunkDigest> digests_;
  File file_;
  std::string path_;
  // Whether the head is made. A file that is written in order keeps the first
  // version, which has no digests.
  bool writes_head_ = false;
  // The blocks that neighbouring pieces may share; see [Note: edges].
  uint64_t edge_bytes_ = kDirectAlignment;
  // The bytes held: from begin_offset_ up to held_bytes_, an offset, and from
  // back_begin_ to the end.
  uint64_t held_bytes_ = 0;
  std::vector<uint8_t> held_;
  uint64_t back_begin_ = UINT64_MAX;
  std::vector<uint8_t> back_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_FILE_IMAGE_H_
