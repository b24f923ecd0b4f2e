// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/element.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "dcp/base/check.h"
#include "dcp/tensor/float_codec.h"

namespace dcp {
namespace {

// How many elements are transformed at a time: few enough for the first-level
// cache, enough for the inner loops.
constexpr uint64_t kChunkElements = 512;

template <typename T>
T Load(const uint8_t* src) {
  T value;
  std::memcpy(&value, src, sizeof(T));
  return value;
}

template <typename T>
void Store(uint8_t* dst, T value) {
  std::memcpy(dst, &value, sizeof(T));
}

uint16_t Swapped(uint16_t value) { return __builtin_bswap16(value); }
uint32_t Swapped(uint32_t value) { return __builtin_bswap32(value); }
uint64_t Swapped(uint64_t value) { return __builtin_bswap64(value); }

template <typename T>
void SwapAll(uint8_t* data, uint64_t num_components) {
  for (uint64_t i = 0; i < num_components; ++i) {
    uint8_t* const at = data + i * sizeof(T);
    Store<T>(at, Swapped(Load<T>(at)));
  }
}

void SwapBytes(DType dtype, uint8_t* data, uint64_t num_elements) {
  const uint64_t component = ComponentSize(dtype);
  const uint64_t num = num_elements * (ElementSize(dtype) / component);
  switch (component) {
    case 1:
      return;
    case 2:
      return SwapAll<uint16_t>(data, num);
    case 4:
      return SwapAll<uint32_t>(data, num);
    case 8:
      return SwapAll<uint64_t>(data, num);
    default:
      DCP_CHECK(false, "component of ", component, " bytes");
  }
}

// Flips the sign of every `stride`-th component, beginning with `first`.
// Components are little-endian: the sign is in the last byte.
void FlipSigns(uint64_t component, uint64_t first, uint64_t stride,
               uint8_t* data, uint64_t num_components) {
  for (uint64_t i = first; i < num_components; i += stride) {
    data[i * component + component - 1] ^= 0x80;
  }
}

template <typename T>
void NegateIntegers(uint8_t* data, uint64_t num) {
  for (uint64_t i = 0; i < num; ++i) {
    uint8_t* const at = data + i * sizeof(T);
    Store<T>(at, static_cast<T>(T{0} - Load<T>(at)));
  }
}

void Negate(DType dtype, uint8_t* data, uint64_t num_elements) {
  const uint64_t component = ComponentSize(dtype);
  const uint64_t num = num_elements * (ElementSize(dtype) / component);
  switch (dtype) {
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:  // zero and NaN have no sign
      for (uint64_t i = 0; i < num; ++i) {
        if ((data[i] & 0x7f) != 0) data[i] ^= 0x80;
      }
      return;
    case DType::kFloat4E2M1FNX2:
      for (uint64_t i = 0; i < num; ++i) data[i] ^= 0x88;
      return;
    case DType::kInt64:
    case DType::kUInt64:
      return NegateIntegers<uint64_t>(data, num);
    case DType::kInt32:
    case DType::kUInt32:
      return NegateIntegers<uint32_t>(data, num);
    case DType::kInt16:
    case DType::kUInt16:
      return NegateIntegers<uint16_t>(data, num);
    case DType::kInt8:
    case DType::kUInt8:
      return NegateIntegers<uint8_t>(data, num);
    case DType::kFloat8E8M0FNU:
    case DType::kBool:
    case DType::kBits1x8:
    case DType::kBits2x4:
    case DType::kBits4x2:
    case DType::kBits8:
    case DType::kBits16:
      return;  // these types have no negative numbers
    default:
      return FlipSigns(component, 0, 1, data, num);
  }
}

// Swap, conj and neg in place.
void FixElements(const ElementTransform& transform, uint8_t* data,
                 uint64_t num_elements) {
  if (transform.swap_bytes) SwapBytes(transform.from, data, num_elements);
  if (transform.conj && IsComplex(transform.from)) {
    FlipSigns(ComponentSize(transform.from), 1, 2, data, 2 * num_elements);
  }
  if (transform.neg) Negate(transform.from, data, num_elements);
}

// The float4_e2m1fn values: a sign, two exponent bits, one mantissa bit.
constexpr float kFloat4[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                               4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                               -2.0f, -3.0f, -4.0f, -6.0f};

void DecodeHalves(bool high, const uint8_t* src, std::span<float> dst) {
  const int shift = high ? 4 : 0;
  for (size_t i = 0; i < dst.size(); ++i) {
    dst[i] = kFloat4[(src[i] >> shift) & 0xf];
  }
}

}  // namespace

bool CanConvert(DType from, DType to) {
  return from == to || (HasFloatCodec(from) && HasFloatCodec(to));
}

void TransformElements(const ElementTransform& transform, const uint8_t* src,
                       uint8_t* dst, uint64_t num_elements,
                       uint64_t* num_beyond) {
  if (num_elements == 0) return;
  const DType from = transform.from;
  const DType to = transform.to;
  const bool halves = from == DType::kFloat4E2M1FNX2 && HasFloatCodec(to);
  DCP_CHECK(halves || CanConvert(from, to), TorchName(from), " to ",
            TorchName(to));
  const uint64_t src_size = ElementSize(from);
  const uint64_t dst_size = ElementSize(to);
  if (from == to) {
    std::memcpy(dst, src, num_elements * src_size);
    FixElements(transform, dst, num_elements);
    return;
  }

  const bool fix = transform.swap_bytes || transform.conj || transform.neg;
  std::array<uint8_t, kChunkElements * sizeof(double)> fixed;
  std::array<float, kChunkElements> floats;
  for (uint64_t done = 0; done < num_elements; done += kChunkElements) {
    const uint64_t num = std::min(kChunkElements, num_elements - done);
    const uint8_t* chunk = src + done * src_size;
    if (fix) {
      std::memcpy(fixed.data(), chunk, num * src_size);
      FixElements(transform, fixed.data(), num);
      chunk = fixed.data();
    }
    const std::span<float> values(floats.data(), num);
    if (halves) {
      DecodeHalves(transform.high_half, chunk, values);
    } else {
      DecodeFloats(from, chunk, values);
    }
    EncodeFloats(to, values, dst + done * dst_size);
    if (num_beyond == nullptr) continue;
    *num_beyond += CountBeyond(to, values);
    // If `to` has no infinity, they have already been counted.
    if (from == DType::kFloat64 && HasInfinity(to)) {
      *num_beyond += CountBeyondFloat(chunk, num);
    }
  }
}

}  // namespace dcp
