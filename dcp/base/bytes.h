// SPDX-License-Identifier: Apache-2.0
// Spans of bytes and checked arithmetic on quantities that come from files.
// Pure and header-only; any thread. Every length or offset that was read from
// a file goes through CheckedAdd and CheckedMul before it is used.
#ifndef DCP_BASE_BYTES_H_
#define DCP_BASE_BYTES_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

namespace dcp {

using ByteSpan = std::span<const uint8_t>;
using MutableByteSpan = std::span<uint8_t>;

// The sum or product; nullopt if it does not fit into 64 bits.
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The sum or product; the largest number if it does not fit into 64 bits.
inline uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<uint64_t>::max());
}

inline uint64_t SaturatingMul(uint64_t a, uint64_t b) {
  return CheckedMul(a, b).value_or(std::numeric_limits<uint64_t>::max());
}

// The quotient, rounded up.
constexpr uint64_t DivideUp(uint64_t value, uint64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

// AlignDown: the largest multiple of `alignment` that is not above `value`.
// AlignUp: the smallest that is not below it. `alignment` is a power of two;
// the caller of AlignUp knows that the result fits.
constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) {
  return value & ~(alignment - 1);
}

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return AlignDown(value + alignment - 1, alignment);
}

inline ByteSpan AsBytes(absl::string_view text) {
  return ByteSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

inline absl::string_view AsText(ByteSpan bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                           bytes.size());
}

// Little-endian integers at any address. The caller has checked the bounds.
template <typename T>
T LoadLittleEndian(const uint8_t* src) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  __builtin_memcpy(&value, src, sizeof(T));
  return value;
}

}  // namespace dcp

#endif  // DCP_BASE_BYTES_H_
