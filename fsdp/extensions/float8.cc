// SPDX-License-Identifier: Apache-2.0

#include "fsdp/extensions/float8.h"

#include <cmath>
#include <vector>

#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/extensions/join_shards.h"

namespace fsdp {
namespace {

constexpr double kLargestE4m3 = 448;
// The scale for a parameter that is zero, or so small that the scale would be
// subnormal: division by that is imprecise or impossible in float32.
constexpr double kSmallestScale = 1e-30;

// A rank with an empty shard contributes 0.
at::Tensor LargestMagnitude(const at::Tensor& shard) {
  TORCH_CHECK_VALUE(c10::isFloatingType(shard.scalar_type()),
                    "a float8 gather requires a floating-point parameter, not ",
                    shard.scalar_type());
  if (shard.numel() == 0) {
    return at::zeros({1}, shard.options().dtype(at::kFloat));
  }
  at::Tensor largest = shard.abs().max().to(at::kFloat).view({1});
  // A maximum may ignore NaN; an infinity has the same effect on the scale.
  return largest.masked_fill_(largest.isnan(), HUGE_VAL);
}

AllGatherExtension::Inputs Float8PreAllGather(
    const at::Tensor& shard, const AllGatherExtension::Context& context) {
  const at::Tensor scale = float8_scale(context.maximum.squeeze(0));
  // As bytes: not every backend sends float8.
  return {.tensors = {quantize_float8(shard, scale).view(at::kByte)},
          .metadata = {scale, SizesAsMetadata(shard)}};
}

void Float8PostAllGather(const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& metadata,
                         at::Tensor dst) {
  const at::Tensor quantized = outputs[0].view(at::kFloat8_e4m3fn);
  JoinShards(dequantize_float8(quantized, metadata[0], at::kFloat), metadata[1],
             dst);
}

}  // namespace

at::Tensor float8_scale(const at::Tensor& largest_magnitude) {
  // If it is not finite, every element becomes NaN, because a saturated one
  // would go unnoticed.
  const at::Tensor scale = (largest_magnitude.to(at::kFloat) / kLargestE4m3)
                               .clamp_min(kSmallestScale);
  return scale.masked_fill(scale.isinf(), NAN);
}

at::Tensor quantize_float8(const at::Tensor& tensor, const at::Tensor& scale) {
  // The largest element's quotient may round to just above the limit.
  return (tensor.to(at::kFloat) / scale)
      .clamp(-kLargestE4m3, kLargestE4m3)
      .to(at::kFloat8_e4m3fn)
      .contiguous();
}

at::Tensor dequantize_float8(const at::Tensor& quantized,
                             const at::Tensor& scale, c10::ScalarType dtype) {
  return (quantized.to(at::kFloat) * scale).to(dtype);
}

AllGatherExtension float8_all_gather() {
  return {.pre_all_gather = Float8PreAllGather,
          .post_all_gather = Float8PostAllGather,
          .local_maximum = LargestMagnitude};
}

}  // namespace fsdp
