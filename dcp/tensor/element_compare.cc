// SPDX-License-Identifier: Apache-2.0
// CompareElements in element.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>

#include "dcp/tensor/element.h"
#include "dcp/tensor/float_codec.h"

namespace dcp {
namespace {

// How many bytes are compared at a time.
constexpr uint64_t kCompareBytes = 4096;
constexpr uint64_t kMaxElementBytes = 16;

constexpr uint64_t kFarthest = std::numeric_limits<uint64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The distance between two unequal components.
struct Distance {
  double abs = 0;
  double rel = 0;
  uint64_t ulp = 0;
};

constexpr Distance kApart = {kInfinity, kInfinity, kFarthest};

// The distance for a difference |a - b| of `abs`, with the relative one
// computed.
Distance DistanceFrom(double b, double abs, uint64_t ulp) {
  const double rel = abs == 0 ? 0 : abs / std::fabs(b);
  return {abs, std::isnan(rel) ? kInfinity : rel, ulp};
}

constexpr std::array<double, 8> kFloat4Values = {0, .5, 1, 1.5, 2, 3, 4, 6};
constexpr uint8_t kFloat8E8M0Nan = 0xff;

// `values` belong to `codes`. Codes are sign and magnitude, so the number of
// codes between two is computed by arithmetic. Two NaNs have the distance 0, a
// NaN and a number are infinitely far apart.
Distance FloatDistance(std::array<uint64_t, 2> codes, uint32_t num_bits,
                       std::array<double, 2> values) {
  const bool a_is_nan = std::isnan(values[0]);
  const bool b_is_nan = std::isnan(values[1]);
  if (a_is_nan && b_is_nan) return {};
  if (a_is_nan || b_is_nan) return kApart;
  const uint64_t sign = uint64_t{1} << (num_bits - 1);
  const auto order = [sign](uint64_t code) -> uint64_t {
    return (code & sign) != 0 ? uint64_t{0} - (code & ~sign) : code;
  };
  const uint64_t forward = order(codes[0]) - order(codes[1]);
  const bool negative = values[0] < values[1];
  return DistanceFrom(values[1], std::fabs(values[0] - values[1]),
                      negative ? uint64_t{0} - forward : forward);
}

double DoubleAt(DType dtype, const uint8_t* src) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, src, sizeof(value));
    return value;
  }
  float value;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, src, sizeof(value));
    return static_cast<double>(value);
  }
  DecodeFloats(dtype, src, std::span<float>(&value, 1));
  return static_cast<double>(value);
}

// The type of a complex type's two components.
DType ComponentType(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

uint64_t CodeAt(uint64_t size, const uint8_t* src) {
  uint64_t code = 0;
  std::memcpy(&code, src, size);
  return code;
}

bool IsSigned(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32 ||
         dtype == DType::kInt16 || dtype == DType::kInt8;
}

// The double nearest to an integer.
double IntegerAt(DType dtype, const uint8_t* src) {
  const uint64_t size = ElementSize(dtype);
  const uint64_t code = CodeAt(size, src);
  if (!IsSigned(dtype)) return static_cast<double>(code);
  const uint64_t shift = 64 - 8 * size;
  return static_cast<double>(static_cast<int64_t>(code << shift) >> shift);
}

Distance IntegerDistance(DType dtype, const uint8_t* a, const uint8_t* b) {
  const uint64_t size = ElementSize(dtype);
  uint64_t x = CodeAt(size, a);
  uint64_t y = CodeAt(size, b);
  if (IsSigned(dtype)) {
    const uint64_t shift = 64 - 8 * size;
    const auto extend = [shift](uint64_t code) {
      const int64_t wide = static_cast<int64_t>(code << shift) >> shift;
      // Maps signed values to unsigned ones in the same order.
      return static_cast<uint64_t>(wide) ^ (uint64_t{1} << 63);
    };
    x = extend(x);
    y = extend(y);
  }
  const uint64_t difference = std::max(x, y) - std::min(x, y);
  return DistanceFrom(IntegerAt(dtype, b), static_cast<double>(difference),
                      difference);
}

double Float4Value(uint64_t code) {
  const double magnitude = kFloat4Values[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

Distance Float4Distance(const uint8_t* a, const uint8_t* b) {
  Distance farther;
  for (uint32_t shift : {0u, 4u}) {
    const std::array<uint64_t, 2> codes = {*a >> shift & 15u,
                                           *b >> shift & 15u};
    const Distance one =
        FloatDistance(codes, 4, {Float4Value(codes[0]), Float4Value(codes[1])});
    farther.abs = std::max(farther.abs, one.abs);
    farther.rel = std::max(farther.rel, one.rel);
    farther.ulp = std::max(farther.ulp, one.ulp);
  }
  return farther;
}

// Powers of two without a sign: the codes are in the order of the values.
double Float8E8M0Value(uint8_t code) {
  constexpr int kBias = 127;
  if (code == kFloat8E8M0Nan) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, code - kBias);
}

Distance Float8E8M0Distance(uint8_t a, uint8_t b) {
  if (a == kFloat8E8M0Nan || b == kFloat8E8M0Nan) return kApart;
  return DistanceFrom(Float8E8M0Value(b),
                      std::fabs(Float8E8M0Value(a) - Float8E8M0Value(b)),
                      static_cast<uint64_t>(std::max(a, b) - std::min(a, b)));
}

// The distance between two components. Their type is not complex.
Distance ComponentDistance(DType dtype, const uint8_t* a, const uint8_t* b) {
  const uint64_t size = ElementSize(dtype);
  if (HasFloatCodec(dtype)) {
    return FloatDistance({CodeAt(size, a), CodeAt(size, b)},
                         static_cast<uint32_t>(8 * size),
                         {DoubleAt(dtype, a), DoubleAt(dtype, b)});
  }
  switch (dtype) {
    case DType::kFloat4E2M1FNX2:
      return Float4Distance(a, b);
    case DType::kFloat8E8M0FNU:
      return Float8E8M0Distance(*a, *b);
    default:
      return IntegerDistance(dtype, a, b);
  }
}

bool IsInteger(DType dtype) {
  return !HasFloatCodec(dtype) && dtype != DType::kFloat4E2M1FNX2 &&
         dtype != DType::kFloat8E8M0FNU;
}

// The value of a component that is one number.
double NumberAt(DType dtype, const uint8_t* src) {
  if (HasFloatCodec(dtype)) return DoubleAt(dtype, src);
  if (dtype == DType::kFloat8E8M0FNU) return Float8E8M0Value(*src);
  return IntegerAt(dtype, src);
}

using Complex = std::array<double, 2>;

// Real numbers have an imaginary part of 0.
bool IsClose(const Complex& a, const Complex& b, const Tolerance& tolerance) {
  const bool a_is_nan = std::isnan(a[0]) || std::isnan(a[1]);
  const bool b_is_nan = std::isnan(b[0]) || std::isnan(b[1]);
  if (a_is_nan || b_is_nan) return a_is_nan && b_is_nan && tolerance.equal_nan;
  if (a == b) return true;
  const double apart = std::hypot(a[0] - b[0], a[1] - b[1]);
  return std::isfinite(apart) &&
         apart <= tolerance.atol + tolerance.rtol * std::hypot(b[0], b[1]);
}

bool ElementsAreClose(DType dtype, const uint8_t* a, const uint8_t* b,
                      const Tolerance& tolerance) {
  if (dtype == DType::kFloat4E2M1FNX2) {
    return IsClose({Float4Value(*a & 15u), 0}, {Float4Value(*b & 15u), 0},
                   tolerance) &&
           IsClose({Float4Value(*a >> 4), 0}, {Float4Value(*b >> 4), 0},
                   tolerance);
  }
  if (IsInteger(dtype) && ComponentType(dtype) == dtype) {
    // Differences of large integers are exact here; as doubles they would not
    // be.
    const double apart = IntegerDistance(dtype, a, b).abs;
    return apart <=
           tolerance.atol + tolerance.rtol * std::fabs(IntegerAt(dtype, b));
  }
  const DType component_type = ComponentType(dtype);
  const uint64_t component = ComponentSize(dtype);
  const bool is_complex = component_type != dtype;
  const auto value = [&](const uint8_t* src) -> Complex {
    return {NumberAt(component_type, src),
            is_complex ? NumberAt(component_type, src + component) : 0};
  };
  return IsClose(value(a), value(b), tolerance);
}

// The tolerance decides, or without one the bits.
bool ElementsAreEqual(DType dtype, const uint8_t* a, const uint8_t* b,
                      const std::optional<Tolerance>& tolerance) {
  const bool same_bits = std::memcmp(a, b, ElementSize(dtype)) == 0;
  if (!tolerance.has_value()) return same_bits;
  if (same_bits && tolerance->equal_nan) return true;
  return ElementsAreClose(dtype, a, b, *tolerance);
}

// For adjacent elements that are not all equal.
void CompareOneByOne(DType dtype, const uint8_t* a, const uint8_t* b,
                     uint64_t num_elements, uint64_t first_index,
                     ElementDifference& difference,
                     const std::optional<Tolerance>& tolerance) {
  const DType component_type = ComponentType(dtype);
  const uint64_t size = ElementSize(dtype);
  const uint64_t component = ComponentSize(dtype);
  for (uint64_t i = 0; i < num_elements; ++i) {
    const uint8_t* const left = a + i * size;
    const uint8_t* const right = b + i * size;
    if (ElementsAreEqual(dtype, left, right, tolerance)) continue;
    if (difference.num_different++ == 0) {
      difference.first_different = first_index + i;
    }
    for (uint64_t at = 0; at < size; at += component) {
      if (std::memcmp(left + at, right + at, component) == 0) continue;
      const Distance distance =
          ComponentDistance(component_type, left + at, right + at);
      difference.max_abs = std::max(difference.max_abs, distance.abs);
      difference.max_ulp = std::max(difference.max_ulp, distance.ulp);
      difference.max_rel = std::max(difference.max_rel, distance.rel);
    }
  }
}

}  // namespace

void CompareElements(DType dtype, const uint8_t* a, const uint8_t* b,
                     uint64_t num_elements, uint64_t first_index,
                     ElementDifference& difference,
                     const std::optional<Tolerance>& tolerance) {
  const uint64_t size = ElementSize(dtype);
  // If a NaN does not equal itself, equal bits do not mean equal elements.
  const bool bits_suffice = !tolerance.has_value() || tolerance->equal_nan;
  static_assert(kCompareBytes % kMaxElementBytes == 0);
  const uint64_t at_once = kCompareBytes / size;
  for (uint64_t done = 0; done < num_elements; done += at_once) {
    const uint64_t num = std::min(at_once, num_elements - done);
    const uint8_t* const left = a + done * size;
    const uint8_t* const right = b + done * size;
    if (bits_suffice && std::memcmp(left, right, num * size) == 0) continue;
    CompareOneByOne(dtype, left, right, num, first_index + done, difference,
                    tolerance);
  }
}

}  // namespace dcp
