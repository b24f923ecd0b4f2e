// SPDX-License-Identifier: Apache-2.0
// A parameter that travels as float8: one byte per element, half of bfloat16's
// traffic. Each gather scales the shards so that the whole parameter's largest
// magnitude becomes e4m3's largest value. That takes one all-reduce over the
// mesh, with one number for each such parameter in the group. The scale is then
// equal on every rank, and is not sent. The shard that the optimizer steps
// stays as it is: gradients pass as if nothing had been rounded. A single rank
// sends nothing, but also computes with the rounded parameter, so that a run
// trains in the same way on any number of ranks.
//
// Error. With s = (the parameter's largest magnitude) / 448, an element x comes
// back with an error of at most |x| / 16 where |x| >= s / 64, and at most s /
// 1024 below that, before the rounding to the computation's dtype. Zeros,
// including padding, are exact; infinities and NaN make the whole parameter
// NaN.
#ifndef FSDP_EXTENSIONS_FLOAT8_H_
#define FSDP_EXTENSIONS_FLOAT8_H_

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/engine/all_gather_extension.h"

namespace fsdp {

// For FullyShardOptions::all_gather_extension_fn. Stateless: one extension may
// serve many parameters.
AllGatherExtension float8_all_gather();

// Both steps, with a known scale. `quantize_float8` returns float8_e4m3fn;
// `scale` is float32, without dimensions: `float8_scale`(largest magnitude).
at::Tensor float8_scale(const at::Tensor& largest_magnitude);
at::Tensor quantize_float8(const at::Tensor& tensor, const at::Tensor& scale);
at::Tensor dequantize_float8(const at::Tensor& quantized,
                             const at::Tensor& scale, c10::ScalarType dtype);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_FLOAT8_H_
