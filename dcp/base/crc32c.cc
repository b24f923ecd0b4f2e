// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the crc32 instruction in SSE 4.2. The instruction can start on 8
// bytes in every cycle but takes three cycles to return a result, so three
// neighbouring stretches are processed at once and then joined. Appending n
// zero bytes to the covered bytes is a linear map on the CRC's 32 bits, which
// four tables of 256 entries hold for one n (Mark Adler's method).
#include <array>
#include <cstddef>
#include <cstdint>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace dcp {
namespace {

// Castagnoli's polynomial, bits reversed.
constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;

using Table = std::array<uint32_t, 256>;

constexpr Table MakeByteTable() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr Table kByteTable = MakeByteTable();

// CRC-32C without the inversions before and after.
uint32_t UpdatePortable(uint32_t crc, const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    crc = (crc >> 8) ^ kByteTable[(crc ^ data[i]) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)

// Long stretches amortise the joining; short ones do the same for smaller
// inputs.
constexpr size_t kLongBytes = 8192;
constexpr size_t kShortBytes = 256;

// The CRC after `kBytes` more zero bytes.
template <size_t kBytes>
struct ZerosAppended {
  ZerosAppended() {
    // The map is linear, so that each entry is the sum of its bits' entries.
    for (uint32_t i = 0; i < 4; ++i) {
      tables[i][0] = 0;
      for (uint32_t bit = 0; bit < 8; ++bit) {
        uint32_t crc = 1u << (8 * i + bit);
        for (size_t n = 0; n < kBytes; ++n) {
          crc = (crc >> 8) ^ kByteTable[crc & 0xff];
        }
        for (uint32_t rest = 0; rest < 1u << bit; ++rest) {
          tables[i][(1u << bit) + rest] = tables[i][rest] ^ crc;
        }
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^
           tables[2][(crc >> 16) & 0xff] ^ tables[3][crc >> 24];
  }
  std::array<Table, 4> tables;
};

template <size_t kBytes>
__attribute__((target("sse4.2"))) uint64_t UpdateStretches(uint64_t crc,
                                                           const uint8_t*& data,
                                                           size_t& size) {
  static const ZerosAppended<kBytes> shift;
  while (size >= 3 * kBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBytes; i += 8) {
      crc = _mm_crc32_u64(crc, LoadLittleEndian<uint64_t>(data + i));
      second =
          _mm_crc32_u64(second, LoadLittleEndian<uint64_t>(data + kBytes + i));
      third = _mm_crc32_u64(third,
                            LoadLittleEndian<uint64_t>(data + 2 * kBytes + i));
    }
    crc = shift(static_cast<uint32_t>(crc)) ^ second;
    crc = shift(static_cast<uint32_t>(crc)) ^ third;
    data += 3 * kBytes;
    size -= 3 * kBytes;
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t UpdateHardware(uint32_t begin,
                                                          const uint8_t* data,
                                                          size_t size) {
  uint64_t crc = UpdateStretches<kLongBytes>(begin, data, size);
  crc = UpdateStretches<kShortBytes>(crc, data, size);
  for (; size >= 8; data += 8, size -= 8) {
    crc = _mm_crc32_u64(crc, LoadLittleEndian<uint64_t>(data));
  }
  auto last = static_cast<uint32_t>(crc);
  for (; size > 0; ++data, --size) last = _mm_crc32_u8(last, *data);
  return last;
}

#endif

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, ByteSpan bytes) {
  return ~UpdatePortable(~crc, bytes.data(), bytes.size());
}

uint32_t ExtendCrc32c(uint32_t crc, ByteSpan bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return ~UpdateHardware(~crc, bytes.data(), bytes.size());
  }
#endif
  return ExtendCrc32cPortable(crc, bytes);
}

}  // namespace dcp
