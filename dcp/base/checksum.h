// SPDX-License-Identifier: Apache-2.0
// The checksums in use: CRC-32 as zip files use it (zlib's polynomial, computed
// by libdeflate), CRC-32C as the wire protocol uses it (Castagnoli's
// polynomial, computed by the processor's own instruction if it has one), and
// XXH3-64 for our own digests of stored chunks (computed by xxHash). All take
// their input in pieces of any size. Thread-compatible.
#ifndef DCP_BASE_CHECKSUM_H_
#define DCP_BASE_CHECKSUM_H_

#include <cstdint>
#include <memory>

#include "dcp/base/bytes.h"

namespace dcp {

// The CRC-32 of the bytes that `crc` covers, followed by `bytes`; begin with 0.
uint32_t ExtendCrc32(uint32_t crc, ByteSpan bytes);

// The same for CRC-32C.
uint32_t ExtendCrc32c(uint32_t crc, ByteSpan bytes);
// CRC-32C without the instruction, for tests.
uint32_t ExtendCrc32cPortable(uint32_t crc, ByteSpan bytes);

// XXH3-64, with seed 0, over all bytes given so far.
class Digest64 {
 public:
  Digest64();
  ~Digest64();
  Digest64(Digest64&&) noexcept;
  Digest64& operator=(Digest64&&) noexcept;

  void Reset();
  void Update(ByteSpan bytes);
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// XXH3-64, with seed 0, over one span.
uint64_t Xxh3Digest(ByteSpan bytes);

}  // namespace dcp

#endif  // DCP_BASE_CHECKSUM_H_
