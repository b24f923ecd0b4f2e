// SPDX-License-Identifier: Apache-2.0
// Crc32Pieces: the CRC-32 of a stretch of bytes whose pieces come in any order,
// each exactly once. It keeps only one word: a CRC is linear, so each piece
// contributes the value that it would have if all other bytes were zero. Not
// for pieces of a few bytes: each piece costs about a microsecond in addition
// to the bytes. Thread-compatible; Contribution is pure.
#ifndef DCP_BASE_CRC32_PIECES_H_
#define DCP_BASE_CRC32_PIECES_H_

#include <cstdint>

#include "dcp/base/bytes.h"

namespace dcp {

class Crc32Pieces {
 public:
  // The amount that `piece` adds to a stretch's CRC if `bytes_behind` bytes
  // follow the piece in the stretch. The cost grows with the piece's length.
  static uint32_t Contribution(ByteSpan piece, uint64_t bytes_behind);

  void Add(uint32_t contribution) { sum_ ^= contribution; }

  // The same as ExtendCrc32(0, whole stretch), once all `length` bytes have
  // been added.
  uint32_t Value(uint64_t length) const;

 private:
  uint32_t sum_ = 0;
};

}  // namespace dcp

#endif  // DCP_BASE_CRC32_PIECES_H_
