// SPDX-License-Identifier: Apache-2.0
// Plans each batch, and fills the blocks with literals and copies.
//
// Tested by tests/dcp/checkpoint/write/image_transfer_test.cc.
#include "dcp/checkpoint/write/image_batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/output/mapped_payloads.h"
#include "dcp/checkpoint/read/read_run.h"

namespace dcp {

ImageBatches::ImageBatches(Output& output, const ImageBatchesOptions& options)
    : output_(output),
      interleave_(options.interleave),
      whole_blocks_(options.whole_blocks),
      blocks_for_scattered_(
          BlocksForScattered(ScatteredBytes(output), options.block_bytes)),
      max_nest_extents_(options.max_nest_extents),
      count_beyond_(options.count_beyond),
      strict_cast_(options.strict_cast),
      planner_(options.check) {}

void ImageBatches::Reset() {
  images_.clear();
  num_beyond_.clear();
  flushed_ = false;
}

void ImageBatches::StartPieces(absl::Span<const FilePiece> pieces,
                               absl::Span<const uint32_t> numbers) {
  Reset();
  for (const uint32_t number : numbers) {
    images_.push_back(
        std::make_unique<FileImage>(output_, pieces[number], number));
  }
}

void ImageBatches::Start(absl::Span<const uint32_t> files) {
  Reset();
  for (const uint32_t file : files) {
    images_.push_back(std::make_unique<FileImage>(output_, file));
  }
}

uint64_t ImageBatches::BlocksPerBatch(uint64_t num_blocks) const {
  return std::max<uint64_t>(
      {num_blocks / (interleave_ ? 4 : 8),
       std::min(blocks_for_scattered_, MostBlocksPerBatch(num_blocks)), 1});
}

absl::StatusOr<std::vector<ImagePiece>> ImageBatches::Plan(Batch& batch) {
  std::vector<ImagePiece> pieces;
  const uint64_t block_bytes = batch.blocks[0].size();
  const uint64_t slot_bytes = SlotBytes(batch.blocks.size(), block_bytes);
  const uint64_t per_block = block_bytes / slot_bytes;
  const uint64_t num_slots = NumSlots(batch.blocks.size() * per_block);
  for (uint64_t i = 0; i < num_slots; ++i) {
    if (ClosesEarly(i)) break;
    FileImage* image = NextFile();
    if (image == nullptr) break;
    const Slot slot{.block = static_cast<uint32_t>(i / per_block),
                    .position = i % per_block * slot_bytes,
                    .length = slot_bytes};
    DCP_RETURN_IF_ERROR(PlanSlot(*image, slot, batch, pieces));
  }
  if (!pieces.empty()) DCP_RETURN_IF_ERROR(planner_.Finish(batch, block_bytes));
  return pieces;
}

uint64_t ImageBatches::NumUnplanned() const {
  return static_cast<uint64_t>(
      std::count_if(images_.begin(), images_.end(),
                    [](const auto& image) { return !image->planned(); }));
}

// How much of a file is planned at once. See [Note: interleaving].
uint64_t ImageBatches::SlotBytes(uint64_t num_blocks,
                                 uint64_t block_bytes) const {
  if (!interleave_ || whole_blocks_) return block_bytes;
  const uint64_t num_files = std::max<uint64_t>(NumUnplanned(), 1);
  const uint64_t share = std::bit_floor(num_blocks * block_bytes / num_files);
  return std::clamp(share, kMaxDirectAlignment, block_bytes);
}

// How many of `most` slots are used: equally many for each file.
uint64_t ImageBatches::NumSlots(uint64_t most) const {
  if (!interleave_) return most;
  const uint64_t num_files = std::clamp<uint64_t>(NumUnplanned(), 1, most);
  return most - most % num_files;
}

// Whether the work planned so far ends a batch after this many slots.
bool ImageBatches::ClosesEarly(uint64_t num_slots) const {
  if (num_slots == 0 || planner_.num_nest_extents() < max_nest_extents_) {
    return false;
  }
  // As in NumSlots, each file gets as many as the others.
  return !interleave_ || num_slots % std::max<uint64_t>(NumUnplanned(), 1) == 0;
}

// See [Note: interleaving].
FileImage* ImageBatches::NextFile() {
  FileImage* next = nullptr;
  std::pair<uint32_t, double> next_key;
  for (const auto& image : images_) {
    if (image->planned()) continue;
    if (!interleave_) return image.get();
    const std::pair<uint32_t, double> key = image->SequenceKey();
    if (next == nullptr || key < next_key) {
      next = image.get();
      next_key = key;
    }
  }
  return next;
}

absl::Status ImageBatches::PlanSlot(FileImage& image, const Slot& slot,
                                    Batch& batch,
                                    std::vector<ImagePiece>& pieces) {
  const FileLayout& layout = image.layout();
  const uint64_t offset = image.next_offset();
  const uint64_t length = image.BytesInBlock(slot.length);
  uint64_t position = slot.position;
  absl::Status status;
  layout.ForEachPiece(
      offset, length,
      [&](size_t part, bool literal, uint64_t begin, uint64_t end) {
        const ImagePiece piece{&image,  slot.block, position, part,
                               literal, begin,      end};
        pieces.push_back(piece);
        if (!literal) {
          status.Update(
              PlanPayload(layout.parts()[part], piece,
                          batch.blocks[slot.block].data() + position));
        }
        position += end - begin;
      });
  DCP_RETURN_IF_ERROR(status);
  DCP_CHECK(position == slot.position + length, layout.name(), " at ", offset);
  image.Advance(length);
  if (image.Holds(offset)) return absl::OkStatus();
  batch.writes.push_back({.file = image.file(),
                          .offset = offset,
                          .length = length,
                          .block = slot.block,
                          .position = slot.position});
  return absl::OkStatus();
}

absl::Status ImageBatches::PlanPayload(const LayoutPart& part,
                                       const ImagePiece& piece, uint8_t* dst) {
  const Payload& payload = output_.payloads[part.payload];
  const uint64_t length = piece.end - piece.begin;
  if (payload.source != nullptr) {
    return payload.source->Fill(piece.begin, MutableByteSpan(dst, length));
  }
  const uint64_t element = ElementSize(payload.dtype);
  DCP_CHECK(piece.begin % element == 0 && length % element == 0,
            piece.image->layout().name(), " begin=", piece.begin,
            " length=", length);
  planner_.Add(*payload.stored, *payload.files, payload.box, payload.dtype,
               piece.begin / element, length / element, dst,
               FindCounter(part.payload));
  return absl::OkStatus();
}

// The count of a payload's elements that are beyond the range.
uint64_t* ImageBatches::FindCounter(uint32_t payload) {
  const Payload& spec = output_.payloads[payload];
  if (!count_beyond_ || spec.stored->dtype == spec.dtype) return nullptr;
  num_beyond_.resize(output_.payloads.size());
  return &num_beyond_[payload];
}

absl::Status ImageBatches::Fill(absl::Span<const ImagePiece> pieces,
                                std::vector<Block>& blocks) {
  for (const ImagePiece& piece : pieces) {
    DCP_RETURN_IF_ERROR(FillPiece(piece, blocks[piece.block].data()));
  }
  return absl::OkStatus();
}

absl::Status ImageBatches::FillPiece(const ImagePiece& piece, uint8_t* block) {
  FileImage& image = *piece.image;
  const LayoutPart& part = image.layout().parts()[piece.part];
  const MutableByteSpan bytes(block + piece.position, piece.end - piece.begin);
  const uint64_t offset =
      piece.begin + (piece.literal ? part.offset : part.payload_offset());
  if (piece.literal) {
    image.FillLiteral(piece.part, piece.begin, bytes);
    if (image.Holds(offset)) image.Hold(offset, bytes);
    return absl::OkStatus();
  }
  TensorSource* source = output_.payloads[part.payload].source;
  if (source != nullptr && !flushed_) DCP_RETURN_IF_ERROR(source->Flush());
  if (image.Holds(offset)) image.Hold(offset, bytes);
  image.AddChecksums(piece.part, piece.begin, bytes);
  return absl::OkStatus();
}

absl::Status ImageBatches::FlushSources() {
  flushed_ = all_planned();
  absl::Status status;
  for (const auto& image : images_) {
    for (const LayoutPart& part : image->layout().parts()) {
      if (part.payload_length == 0) continue;
      TensorSource* source = output_.payloads[part.payload].source;
      if (source != nullptr) status.Update(source->Flush());
    }
  }
  return status;
}

void ImageBatches::AddNumBeyondTo(std::vector<uint64_t>& totals) const {
  for (size_t i = 0; i < num_beyond_.size(); ++i) totals[i] += num_beyond_[i];
}

absl::Status ImageBatches::CheckCasts() const {
  if (strict_cast_ && std::any_of(num_beyond_.begin(), num_beyond_.end(),
                                  [](uint64_t count) { return count > 0; })) {
    return absl::FailedPreconditionError("a cast is beyond the range");
  }
  return absl::OkStatus();
}

std::string ImageBatches::Describe(FileHandle handle) const {
  for (const auto& image : images_) {
    if (image->file().handle == handle) return image->path();
  }
  for (const Payload& payload : output_.payloads) {
    if (payload.files == nullptr) continue;
    const std::string name = payload.files->Describe(handle);
    if (!name.empty()) return name;
  }
  return "?";
}

}  // namespace dcp
