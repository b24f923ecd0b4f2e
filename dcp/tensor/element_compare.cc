// CompareElements of element.h.
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

// Bytes that are compared as one.
constexpr uint64_t kCompareBytes = 4096;
constexpr uint64_t kMaxElementBytes = 16;

constexpr uint64_t kFarthest = std::numeric_limits<uint64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How far apart two unequal components are.
struct Distance {
  double abs = 0;
  uint64_t ulp = 0;
};

// `values` are those of the codes. Codes are sign and magnitude, so that
// counting them in order is arithmetic; two NaNs are at no distance, a NaN
// and a number infinitely far apart.
Distance FloatDistance(std::array<uint64_t, 2> codes, uint32_t num_bits,
                       std::array<double, 2> values) {
  const bool a_is_nan = std::isnan(values[0]);
  const bool b_is_nan = std::isnan(values[1]);
  if (a_is_nan && b_is_nan) return {};
  if (a_is_nan || b_is_nan) return {kInfinity, kFarthest};
  const uint64_t sign = uint64_t{1} << (num_bits - 1);
  const auto order = [sign](uint64_t code) -> uint64_t {
    return (code & sign) != 0 ? uint64_t{0} - (code & ~sign) : code;
  };
  const uint64_t forward = order(codes[0]) - order(codes[1]);
  const bool negative = values[0] < values[1];
  return {std::fabs(values[0] - values[1]),
          negative ? uint64_t{0} - forward : forward};
}

double DoubleAt(DType dtype, const uint8_t* src) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, src, sizeof(value));
    return value;
  }
  float value;
  DecodeFloats(dtype, src, std::span<float>(&value, 1));
  return static_cast<double>(value);
}

// The real type of which a complex one has two.
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

Distance IntegerDistance(bool is_signed, uint64_t size, const uint8_t* a,
                         const uint8_t* b) {
  const uint64_t shift = 64 - 8 * size;
  uint64_t x = CodeAt(size, a);
  uint64_t y = CodeAt(size, b);
  if (is_signed) {
    const auto extend = [shift](uint64_t code) {
      const int64_t wide = static_cast<int64_t>(code << shift) >> shift;
      // The order of signed values, as unsigned ones.
      return static_cast<uint64_t>(wide) ^ (uint64_t{1} << 63);
    };
    x = extend(x);
    y = extend(y);
  }
  const uint64_t difference = std::max(x, y) - std::min(x, y);
  return {static_cast<double>(difference), difference};
}

Distance Float4Distance(const uint8_t* a, const uint8_t* b) {
  constexpr std::array<double, 8> kValues = {0, .5, 1, 1.5, 2, 3, 4, 6};
  Distance farther;
  for (uint32_t shift : {0u, 4u}) {
    const std::array<uint64_t, 2> codes = {*a >> shift & 15u,
                                           *b >> shift & 15u};
    const auto value = [&](uint64_t code) {
      return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
    };
    const Distance one =
        FloatDistance(codes, 4, {value(codes[0]), value(codes[1])});
    farther.abs = std::max(farther.abs, one.abs);
    farther.ulp = std::max(farther.ulp, one.ulp);
  }
  return farther;
}

// Powers of two without a sign: the codes are in the order of the values.
Distance Float8E8M0Distance(uint8_t a, uint8_t b) {
  constexpr uint8_t kNan = 0xff;
  if (a == kNan || b == kNan) return {kInfinity, kFarthest};
  constexpr int kBias = 127;
  return {std::fabs(std::ldexp(1.0, a - kBias) - std::ldexp(1.0, b - kBias)),
          static_cast<uint64_t>(std::max(a, b) - std::min(a, b))};
}

// Of two components of a type that is not complex.
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
    case DType::kInt64:
    case DType::kInt32:
    case DType::kInt16:
    case DType::kInt8:
      return IntegerDistance(/*is_signed=*/true, size, a, b);
    default:
      return IntegerDistance(/*is_signed=*/false, size, a, b);
  }
}

// Of adjacent elements that are not all equal.
void CompareOneByOne(DType dtype, const uint8_t* a, const uint8_t* b,
                     uint64_t num_elements, uint64_t first_index,
                     ElementDifference& difference) {
  const DType component_type = ComponentType(dtype);
  const uint64_t size = ElementSize(dtype);
  const uint64_t component = ComponentSize(dtype);
  for (uint64_t i = 0; i < num_elements; ++i) {
    const uint8_t* const left = a + i * size;
    const uint8_t* const right = b + i * size;
    if (std::memcmp(left, right, size) == 0) continue;
    if (difference.num_different++ == 0) {
      difference.first_different = first_index + i;
    }
    for (uint64_t at = 0; at < size; at += component) {
      if (std::memcmp(left + at, right + at, component) == 0) continue;
      const Distance distance =
          ComponentDistance(component_type, left + at, right + at);
      difference.max_abs = std::max(difference.max_abs, distance.abs);
      difference.max_ulp = std::max(difference.max_ulp, distance.ulp);
    }
  }
}

}  // namespace

void CompareElements(DType dtype, const uint8_t* a, const uint8_t* b,
                     uint64_t num_elements, uint64_t first_index,
                     ElementDifference& difference) {
  const uint64_t size = ElementSize(dtype);
  static_assert(kCompareBytes % kMaxElementBytes == 0);
  const uint64_t at_once = kCompareBytes / size;
  for (uint64_t done = 0; done < num_elements; done += at_once) {
    const uint64_t num = std::min(at_once, num_elements - done);
    const uint8_t* const left = a + done * size;
    const uint8_t* const right = b + done * size;
    if (std::memcmp(left, right, num * size) == 0) continue;
    CompareOneByOne(dtype, left, right, num, first_index + done, difference);
  }
}

}  // namespace dcp
