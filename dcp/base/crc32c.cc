// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the crc32 instruction of SSE 4.2 or ARMv8. The instruction can
// start on 8 bytes in every cycle but takes up to three cycles to return a
// result, so three neighbouring stretches are processed at once and then
// joined. Appending n zero bytes to the covered bytes is a linear map on the
// CRC's 32 bits, which four tables of 256 entries hold for one n (Mark Adler's
// method).
#include <array>
#include <cstddef>
#include <cstdint>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define DCP_WITH_CRC32C __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define DCP_WITH_CRC32C __attribute__((target("crc")))
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

#if defined(DCP_WITH_CRC32C)

#if defined(__x86_64__)

bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

DCP_WITH_CRC32C uint64_t Update8(uint64_t crc, const uint8_t* data) {
  return _mm_crc32_u64(crc, LoadLittleEndian<uint64_t>(data));
}

DCP_WITH_CRC32C uint32_t Update1(uint32_t crc, uint8_t byte) {
  return _mm_crc32_u8(crc, byte);
}

#else

bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

DCP_WITH_CRC32C uint64_t Update8(uint64_t crc, const uint8_t* data) {
  return __crc32cd(static_cast<uint32_t>(crc),
                   LoadLittleEndian<uint64_t>(data));
}

DCP_WITH_CRC32C uint32_t Update1(uint32_t crc, uint8_t byte) {
  return __crc32cb(crc, byte);
}

#endif

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
DCP_WITH_CRC32C uint64_t UpdateStretches(uint64_t crc, const uint8_t*& data,
                                         size_t& size) {
  static const ZerosAppended<kBytes> shift;
  while (size >= 3 * kBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBytes; i += 8) {
      crc = Update8(crc, data + i);
      second = Update8(second, data + kBytes + i);
      third = Update8(third, data + 2 * kBytes + i);
    }
    crc = shift(static_cast<uint32_t>(crc)) ^ second;
    crc = shift(static_cast<uint32_t>(crc)) ^ third;
    data += 3 * kBytes;
    size -= 3 * kBytes;
  }
  return crc;
}

DCP_WITH_CRC32C uint32_t UpdateHardware(uint32_t begin, const uint8_t* data,
                                        size_t size) {
  uint64_t crc = UpdateStretches<kLongBytes>(begin, data, size);
  crc = UpdateStretches<kShortBytes>(crc, data, size);
  for (; size >= 8; data += 8, size -= 8) crc = Update8(crc, data);
  auto last = static_cast<uint32_t>(crc);
  for (; size > 0; ++data, --size) last = Update1(last, *data);
  return last;
}

#endif

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, ByteSpan bytes) {
  return ~UpdatePortable(~crc, bytes.data(), bytes.size());
}

uint32_t ExtendCrc32c(uint32_t crc, ByteSpan bytes) {
#if defined(DCP_WITH_CRC32C)
  static const bool has_instruction = HasInstruction();
  if (has_instruction) {
    return ~UpdateHardware(~crc, bytes.data(), bytes.size());
  }
#endif
  return ExtendCrc32cPortable(crc, bytes);
}

}  // namespace dcp
