// SPDX-License-Identifier: Apache-2.0
// A CRC-32 is the remainder of a polynomial over GF(2), with the first 32 bits
// and the result inverted. Without the inversions it is linear: a message's
// remainder is the sum of the pieces' remainders, each multiplied by x to the
// power n, where n bits follow the piece. The inversions add a term that
// depends only on the length. Polynomials are reflected, as in zlib: the
// highest bit is the coefficient of x^0. Source: zlib, crc32_combine.
#include "dcp/base/crc32_pieces.h"

#include <array>
#include <cstddef>

#include "dcp/base/checksum.h"

namespace dcp {
namespace {

constexpr uint32_t kCrc32Polynomial = 0xedb88320;
constexpr uint32_t kOne = uint32_t{1} << 31;  // x^0

// a * b modulo the polynomial.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kCrc32Polynomial : b >> 1;
  }
  return product;
}

// Entry k is x^(2^k).
constexpr std::array<uint32_t, 32> MakePowers() {
  std::array<uint32_t, 32> powers = {};
  powers[0] = kOne >> 1;
  for (size_t k = 1; k < powers.size(); ++k) {
    powers[k] = Multiply(powers[k - 1], powers[k - 1]);
  }
  return powers;
}

constexpr std::array<uint32_t, 32> kPowers = MakePowers();

// `remainder` times x^(8 * num_bytes).
uint32_t Shift(uint32_t remainder, uint64_t num_bytes) {
  // The order of x is 2^32 - 1, so the powers repeat after 32 entries.
  for (size_t k = 3; num_bytes != 0; ++k, num_bytes >>= 1) {
    if ((num_bytes & 1) != 0) {
      remainder = Multiply(kPowers[k % kPowers.size()], remainder);
    }
  }
  return remainder;
}

}  // namespace

uint32_t Crc32Pieces::Contribution(ByteSpan piece, uint64_t bytes_behind) {
  // The inversions before and after cancel those in ExtendCrc32.
  return Shift(~ExtendCrc32(~uint32_t{0}, piece), bytes_behind);
}

uint32_t Crc32Pieces::Value(uint64_t length) const {
  return sum_ ^ Shift(~uint32_t{0}, length) ^ ~uint32_t{0};
}

}  // namespace dcp
