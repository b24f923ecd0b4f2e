// Floating-point formats to and from float32. Every conversion of torch's
// `to` goes by way of float32, from float64 too, so two functions serve all
// pairs. Pure; any thread; `src` and `dst` at any alignment.
#ifndef DCP_TENSOR_FLOAT_CODEC_H_
#define DCP_TENSOR_FLOAT_CODEC_H_

#include <cstdint>
#include <span>

#include "dcp/tensor/dtype.h"

namespace dcp {

// Whether `dtype` is one of the types below: floating point, but neither
// float4_e2m1fn_x2 nor float8_e8m0fnu.
bool HasFloatCodec(DType dtype);

// `dst.size()` elements of type `dtype`. Exact, except that float64 is
// rounded to nearest even.
void DecodeFloats(DType dtype, const uint8_t* src, std::span<float> dst);

// Rounds to nearest even. What is beyond the range becomes the largest number
// in float8_e4m3fn (as in PyTorch since 2.15; it was NaN before), NaN in the
// fnuz types, infinity in the others. NaNs are those of torch's scalar code:
// float64 and float16 keep sign and as much of the payload as fits, float8
// keeps the sign where it has one, bfloat16 is 0x7fc0. (Where torch has
// vectorised the same loop its NaNs differ, and are 0xffff for bfloat16.)
void EncodeFloats(DType dtype, std::span<const float> src, uint8_t* dst);

// How many of `src` are beyond the range of `dtype`: numbers that it does not
// round to a number of its own, and infinities where it has none. 0 for
// float32 and float64.
uint64_t CountBeyond(DType dtype, std::span<const float> src);

// How many of the float64 at `src` are numbers, but infinite in float32.
uint64_t CountBeyondFloat(const uint8_t* src, uint64_t num_elements);

bool HasInfinity(DType dtype);  // of the types that have a codec

}  // namespace dcp

#endif  // DCP_TENSOR_FLOAT_CODEC_H_
