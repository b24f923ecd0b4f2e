// SPDX-License-Identifier: Apache-2.0
// Crc32Pieces: the CRC-32 of a stretch of bytes whose pieces come in any order,
// each exactly once. It keeps only one word: a CRC is linear, so each piece
// contributes what it would if all other bytes were zero. Not for pieces of a
// few bytes: apart from its bytes, each piece costs about a microsecond.
// Thread-compatible; ContributionOf is pure.
#ifndef DCP_BASE_CRC32_PIECES_H_
#define DCP_BASE_CRC32_PIECES_H_

#include <cstdint>

#include "dcp/base/bytes.h"

namespace dcp {

class Crc32Pieces {
 public:
  // What `piece` adds to the CRC of a stretch in which `bytes_behind` bytes
  // follow it. The cost grows with the length of the piece.
  static uint32_t ContributionOf(ByteSpan piece, uint64_t bytes_behind);

  void Add(uint32_t contribution) { sum_ ^= contribution; }

  // The same as ExtendCrc32(0, whole stretch), once every byte of its `length`
  // has been added.
  uint32_t Value(uint64_t length) const;

 private:
  uint32_t sum_ = 0;
};

}  // namespace dcp

#endif  // DCP_BASE_CRC32_PIECES_H_
