// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/float_codec.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "dcp/base/check.h"

namespace dcp {
namespace {

constexpr uint32_t kFloatMantissaBits = 23;
constexpr uint32_t kFloatBias = 127;
constexpr uint32_t kFloatInfinity = 0x7f800000;

// The meaning of the codes with the largest exponent.
enum class Top : uint8_t {
  kIeee,  // infinity, then NaNs
  kFn,    // numbers, except for the last code, a NaN; no infinity
  kFnuz,  // numbers; minus zero's code is the only NaN
};

template <uint32_t mantissa_bits_, uint32_t bias_, uint32_t bits_, Top top_>
struct Format {
  static constexpr uint32_t kMantissaBits = mantissa_bits_;
  static constexpr uint32_t kBias = bias_;
  static constexpr Top kTop = top_;
  static constexpr uint32_t kSign = 1u << (bits_ - 1);
  static constexpr uint32_t kShift = kFloatMantissaBits - kMantissaBits;
  static constexpr uint32_t kSignShift = 32 - bits_;
  // The first code that is not a number.
  static constexpr uint32_t kEnd = kTop == Top::kIeee
                                       ? kSign - (1u << kMantissaBits)
                                       : (kTop == Top::kFn ? kSign - 1 : kSign);
  // The result of an overflow.
  static constexpr uint32_t kOverflow = kTop == Top::kFn ? kEnd - 1 : kEnd;
  static constexpr uint32_t kNan = kTop == Top::kFnuz ? kSign : kSign - 1;
};

using Half = Format<10, 15, 16, Top::kIeee>;
using E4M3Fn = Format<3, 7, 8, Top::kFn>;
using E5M2 = Format<2, 15, 8, Top::kIeee>;
using E4M3Fnuz = Format<3, 8, 8, Top::kFnuz>;
using E5M2Fnuz = Format<2, 16, 8, Top::kFnuz>;

// `condition ? a : b` with both values already computed: a loop over this is
// vectorised, a loop with branches is not.
constexpr uint32_t Select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = uint32_t{0} - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

template <typename F>
constexpr uint32_t EncodeOne(float value) {
  constexpr uint32_t kRebias = (kFloatBias - F::kBias) << kFloatMantissaBits;
  // Added to a value below the normal range, this leaves the rounded code in
  // the sum's lowest bits.
  constexpr uint32_t kMagic = (kFloatBias - F::kBias + F::kShift + 1)
                              << kFloatMantissaBits;
  constexpr uint32_t kSmallestNormal = kRebias + (1u << kFloatMantissaBits);
  // From here on, a float's exponent would wrap into a code that looks valid.
  constexpr uint32_t kBeyond = kRebias + ((F::kEnd + 1) << F::kShift);
  const uint32_t all = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = all & 0x7fffffffu;

  const uint32_t odd = (magnitude >> F::kShift) & 1;
  const uint32_t normal =
      (magnitude - kRebias + ((1u << (F::kShift - 1)) - 1) + odd) >> F::kShift;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) +
                              std::bit_cast<float>(kMagic)) -
      kMagic;
  uint32_t code = Select(magnitude < kSmallestNormal, subnormal, normal);
  code = Select(code >= F::kEnd, F::kOverflow, code);
  code = Select(magnitude >= kBeyond, F::kOverflow, code);
  uint32_t nan = F::kNan;
  if constexpr (F::kMantissaBits == Half::kMantissaBits) {
    // torch uses the processor's own conversion, which keeps the payload.
    nan = F::kEnd | 0x200u | (magnitude >> F::kShift & 0x3ffu);
  }
  code = Select(magnitude > kFloatInfinity, nan, code);
  uint32_t sign = (all >> F::kSignShift) & F::kSign;
  if constexpr (F::kTop == Top::kFnuz) {
    sign = Select(code == 0, 0, Select(code == F::kEnd, 0, sign));
  }
  return code | sign;
}

template <typename F>
constexpr float DecodeOne(uint32_t code) {
  const uint32_t magnitude = code & (F::kSign - 1);
  const uint32_t sign = (code & F::kSign) << F::kSignShift;
  // Scaling by a power of two is exact and handles subnormals too.
  constexpr uint32_t kScale = (2 * kFloatBias - F::kBias) << kFloatMantissaBits;
  const float scaled = std::bit_cast<float>(magnitude << F::kShift) *
                       std::bit_cast<float>(kScale);
  uint32_t result = std::bit_cast<uint32_t>(scaled);
  if constexpr (F::kTop == Top::kIeee) {
    // A NaN keeps its payload and becomes a quiet one.
    const uint32_t payload = magnitude << F::kShift & 0x7fffffu;
    const uint32_t quiet = Select(payload != 0, payload | 0x400000u, 0);
    result = Select(magnitude >= F::kEnd, kFloatInfinity | quiet, result);
  }
  if constexpr (F::kTop == Top::kFn) {
    result = Select(magnitude == F::kEnd, kFloatInfinity | 0x700000u, result);
  }
  if constexpr (F::kTop == Top::kFnuz) {
    if (code == F::kEnd) return std::bit_cast<float>(kFloatInfinity | 1u);
  }
  return std::bit_cast<float>(result | sign);
}

// dst[i] = function(src[i]) at any alignment. The compiler vectorises only
// loops with a known length and without overlapping ranges, so most elements
// are processed in pieces of a fixed length.
template <typename Src, typename Dst, typename Function>
void Map(const uint8_t* __restrict src, uint8_t* __restrict dst,
         size_t num_elements, Function function) {
  constexpr size_t kPiece = 64;
  while (num_elements >= kPiece) {
    std::array<Src, kPiece> values;
    std::array<Dst, kPiece> results;
    std::memcpy(values.data(), src, sizeof(values));
    for (size_t i = 0; i < kPiece; ++i) results[i] = function(values[i]);
    std::memcpy(dst, results.data(), sizeof(results));
    src += sizeof(values);
    dst += sizeof(results);
    num_elements -= kPiece;
  }
  for (size_t i = 0; i < num_elements; ++i) {
    Src value;
    std::memcpy(&value, src + i * sizeof(Src), sizeof(Src));
    const Dst result = function(value);
    std::memcpy(dst + i * sizeof(Dst), &result, sizeof(Dst));
  }
}

template <typename Code, typename Function>
void EncodeMap(std::span<const float> src, uint8_t* dst, Function function) {
  Map<float, Code>(reinterpret_cast<const uint8_t*>(src.data()), dst,
                   src.size(), function);
}

template <typename Code, typename Function>
void DecodeMap(const uint8_t* src, std::span<float> dst, Function function) {
  Map<Code, float>(src, reinterpret_cast<uint8_t*>(dst.data()), dst.size(),
                   function);
}

template <typename Code, typename F>
void Encode(std::span<const float> src, uint8_t* dst) {
  EncodeMap<Code>(src, dst, [](float value) {
    return static_cast<Code>(EncodeOne<F>(value));
  });
}

// The lowest magnitude, as bits, that is beyond the range: halfway between the
// last number and the next code if that code is even, because the tie then
// rounds to it; else one bit more.
template <typename F>
constexpr uint32_t FirstBeyond() {
  constexpr uint32_t kRebias = (kFloatBias - F::kBias) << kFloatMantissaBits;
  constexpr uint32_t kHalfway =
      kRebias + (F::kEnd << F::kShift) - (1u << (F::kShift - 1));
  return kHalfway + (F::kEnd % 2);
}

// Counts magnitudes in [first, last].
uint64_t CountBetween(std::span<const float> src, uint32_t first,
                      uint32_t last) {
  uint64_t count = 0;
  for (const float value : src) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
    count += static_cast<uint64_t>(magnitude - first <= last - first);
  }
  return count;
}

template <typename F>
uint64_t CountBeyondFormat(std::span<const float> src) {
  return CountBetween(
      src, FirstBeyond<F>(),
      F::kTop == Top::kIeee ? kFloatInfinity - 1 : kFloatInfinity);
}

void DecodeHalf(const uint8_t* src, std::span<float> dst) {
  DecodeMap<uint16_t>(src, dst,
                      [](uint16_t code) { return DecodeOne<Half>(code); });
}

template <typename F>
void DecodeByTable(const uint8_t* src, std::span<float> dst) {
  static constexpr std::array<float, 256> kTable = [] {
    std::array<float, 256> table{};
    for (uint32_t code = 0; code < 256; ++code) {
      table[code] = DecodeOne<F>(code);
    }
    return table;
  }();
  for (size_t i = 0; i < dst.size(); ++i) dst[i] = kTable[src[i]];
}

void EncodeBFloat16(std::span<const float> src, uint8_t* dst) {
  EncodeMap<uint16_t>(src, dst, [](float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    const bool nan = (bits & 0x7fffffffu) > kFloatInfinity;
    return static_cast<uint16_t>(nan ? 0x7fc0u : rounded);
  });
}

void DecodeBFloat16(const uint8_t* src, std::span<float> dst) {
  DecodeMap<uint16_t>(src, dst, [](uint16_t code) {
    return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
  });
}

void EncodeDouble(std::span<const float> src, uint8_t* dst) {
  EncodeMap<double>(src, dst,
                    [](float value) { return static_cast<double>(value); });
}

void DecodeDouble(const uint8_t* src, std::span<float> dst) {
  DecodeMap<double>(src, dst,
                    [](double value) { return static_cast<float>(value); });
}

}  // namespace

bool HasFloatCodec(DType dtype) {
  return IsFloatingPoint(dtype) && dtype != DType::kFloat8E8M0FNU &&
         dtype != DType::kFloat4E2M1FNX2;
}

void DecodeFloats(DType dtype, const uint8_t* src, std::span<float> dst) {
  switch (dtype) {
    case DType::kFloat64:
      return DecodeDouble(src, dst);
    case DType::kFloat32:
      if (!dst.empty()) std::memcpy(dst.data(), src, dst.size_bytes());
      return;
    case DType::kFloat16:
      return DecodeHalf(src, dst);
    case DType::kBFloat16:
      return DecodeBFloat16(src, dst);
    case DType::kFloat8E4M3FN:
      return DecodeByTable<E4M3Fn>(src, dst);
    case DType::kFloat8E5M2:
      return DecodeByTable<E5M2>(src, dst);
    case DType::kFloat8E4M3FNUZ:
      return DecodeByTable<E4M3Fnuz>(src, dst);
    case DType::kFloat8E5M2FNUZ:
      return DecodeByTable<E5M2Fnuz>(src, dst);
    default:
      DCP_CHECK(false, "no float codec for ", TorchName(dtype));
  }
}

void EncodeFloats(DType dtype, std::span<const float> src, uint8_t* dst) {
  switch (dtype) {
    case DType::kFloat64:
      return EncodeDouble(src, dst);
    case DType::kFloat32:
      if (!src.empty()) std::memcpy(dst, src.data(), src.size_bytes());
      return;
    case DType::kFloat16:
      return Encode<uint16_t, Half>(src, dst);
    case DType::kBFloat16:
      return EncodeBFloat16(src, dst);
    case DType::kFloat8E4M3FN:
      return Encode<uint8_t, E4M3Fn>(src, dst);
    case DType::kFloat8E5M2:
      return Encode<uint8_t, E5M2>(src, dst);
    case DType::kFloat8E4M3FNUZ:
      return Encode<uint8_t, E4M3Fnuz>(src, dst);
    case DType::kFloat8E5M2FNUZ:
      return Encode<uint8_t, E5M2Fnuz>(src, dst);
    default:
      DCP_CHECK(false, "no float codec for ", TorchName(dtype));
  }
}

uint64_t CountBeyond(DType dtype, std::span<const float> src) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
      return 0;
    case DType::kFloat16:
      return CountBeyondFormat<Half>(src);
    case DType::kBFloat16:
      return CountBetween(src, 0x7f7f8000u, kFloatInfinity - 1);
    case DType::kFloat8E4M3FN:
      return CountBeyondFormat<E4M3Fn>(src);
    case DType::kFloat8E5M2:
      return CountBeyondFormat<E5M2>(src);
    case DType::kFloat8E4M3FNUZ:
      return CountBeyondFormat<E4M3Fnuz>(src);
    case DType::kFloat8E5M2FNUZ:
      return CountBeyondFormat<E5M2Fnuz>(src);
    default:
      DCP_CHECK(false, "no float codec for ", TorchName(dtype));
  }
}

uint64_t CountBeyondFloat(const uint8_t* src, uint64_t num_elements) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  uint64_t count = 0;
  for (uint64_t i = 0; i < num_elements; ++i) {
    double value;
    std::memcpy(&value, src + i * sizeof(value), sizeof(value));
    const double magnitude = std::fabs(value);
    // 2^128 - 2^103, halfway to the first power of two beyond float32's range.
    count += static_cast<uint64_t>(magnitude >= 0x1.ffffffp127 &&
                                   magnitude < kInfinity);
  }
  return count;
}

bool HasInfinity(DType dtype) {
  return dtype != DType::kFloat8E4M3FN && dtype != DType::kFloat8E4M3FNUZ &&
         dtype != DType::kFloat8E5M2FNUZ;
}

}  // namespace dcp
