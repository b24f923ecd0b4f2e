// SPDX-License-Identifier: Apache-2.0
// Conversion from floating-point formats to float32 and back. Every conversion
// in torch's `to` goes through float32, including those from float64, so two
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
// fnuz types, infinity in the others. NaNs are converted as in torch's scalar
// code: float64 and float16 keep the sign and as much payload as fits, float8
// keeps the sign if it has one, bfloat16 is 0x7fc0. (If torch has vectorised
// the same loop, the NaNs there differ; for bfloat16 they are 0xffff.)
void EncodeFloats(DType dtype, std::span<const float> src, uint8_t* dst);

// How many elements of `src` are beyond the range of `dtype`: numbers that
// round to a value outside it, and infinities if the type has none. 0 for
// float32 and float64.
uint64_t CountBeyond(DType dtype, std::span<const float> src);

// How many float64 at `src` are finite, but infinite in float32.
uint64_t CountBeyondFloat(const uint8_t* src, uint64_t num_elements);

bool HasInfinity(DType dtype);  // `dtype` has a codec

}  // namespace dcp

#endif  // DCP_TENSOR_FLOAT_CODEC_H_
