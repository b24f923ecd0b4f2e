// SPDX-License-Identifier: Apache-2.0
// Conversion of floating-point formats to and from float32. Every conversion of
// torch's `to` goes through float32, including those from float64, so two
// functions serve all pairs. Pure; any thread; `src` and `dst` at any
// alignment.
#ifndef DCP_TENSOR_FLOAT_CODEC_H_
#define DCP_TENSOR_FLOAT_CODEC_H_

#include <cstdint>
#include <span>

#include "dcp/tensor/dtype.h"

namespace dcp {

// Whether the functions below handle `dtype`: it is floating point, but neither
// float4_e2m1fn_x2 nor float8_e8m0fnu.
bool HasFloatCodec(DType dtype);

// Reads `dst.size()` elements of type `dtype`. Exact, except that float64 is
// rounded to nearest even.
void DecodeFloats(DType dtype, const uint8_t* src, std::span<float> dst);

// Rounds to nearest even. Values beyond the range become the largest number in
// float8_e4m3fn (as in PyTorch since 2.15; before, they became NaN), NaN in the
// fnuz types, infinity in the others. NaNs become what torch's scalar code
// makes of them: float64 and float16 keep the sign and as much of the payload
// as fits, float8 keeps the sign if it has one, bfloat16 is 0x7fc0. (Where
// torch has vectorised the same loop, its NaNs differ; for bfloat16 they are
// 0xffff.)
void EncodeFloats(DType dtype, std::span<const float> src, uint8_t* dst);

// How many of `src` are beyond the range of `dtype`: numbers that round to
// something other than a number within it, and infinities if it has none. 0 for
// float32 and float64.
uint64_t CountBeyond(DType dtype, std::span<const float> src);

// How many of the float64 at `src` are finite, but infinite in float32.
uint64_t CountBeyondFloat(const uint8_t* src, uint64_t num_elements);

bool HasInfinity(DType dtype);  // `dtype` has a codec

}  // namespace dcp

#endif  // DCP_TENSOR_FLOAT_CODEC_H_
