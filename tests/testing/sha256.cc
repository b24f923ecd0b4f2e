// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dcp::testing {
namespace {

constexpr size_t kBlock = 64;
using State = std::array<uint32_t, 8>;

// For each of the first primes: the first 32 bits in the n-th root's fractional
// part. The state uses square roots, the rounds use cube roots.
template <size_t kCount>
std::array<uint32_t, kCount> PrimeRoots(bool cube) {
  std::array<uint32_t, kCount> roots{};
  size_t found = 0;
  for (uint32_t n = 2; found < kCount; ++n) {
    bool is_prime = true;
    for (uint32_t d = 2; d * d <= n; ++d) is_prime = is_prime && n % d != 0;
    if (!is_prime) continue;
    const long double root = cube ? std::cbrt(static_cast<long double>(n))
                                  : std::sqrt(static_cast<long double>(n));
    roots[found++] = static_cast<uint32_t>(
        std::floor((root - std::floor(root)) * 4294967296.0L));
  }
  return roots;
}

void AddBlock(const char* block, State& state) {
  static const std::array<uint32_t, 64> kRounds = PrimeRoots<64>(true);
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 64; ++i) {
    if (i < 16) {
      for (size_t b = 0; b < 4; ++b) {
        w[i] = w[i] << 8 | static_cast<uint8_t>(block[4 * i + b]);
      }
      continue;
    }
    const uint32_t a = w[i - 15];
    const uint32_t b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] +
           (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  State s = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t e = s[4];
    const uint32_t a = s[0];
    const uint32_t one =
        s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
        ((e & s[5]) ^ (~e & s[6])) + kRounds[i] + w[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
        ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
  }
  for (size_t i = 0; i < s.size(); ++i) state[i] += s[i];
}

}  // namespace

std::string Sha256(absl::string_view bytes) {
  State state = PrimeRoots<8>(false);
  std::string padded = absl::StrCat(bytes, "\x80");
  while (padded.size() % kBlock != kBlock - 8) padded.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded.push_back(
        static_cast<char>(uint64_t{bytes.size()} * 8 >> shift & 0xff));
  }
  for (size_t at = 0; at < padded.size(); at += kBlock) {
    AddBlock(padded.data() + at, state);
  }
  std::string digest;
  for (const uint32_t word : state)
    absl::StrAppendFormat(&digest, "%08x", word);
  return digest;
}

}  // namespace dcp::testing
