// SPDX-License-Identifier: Apache-2.0
// A frozen weight in four bits, as QLoRA stores the base model: blocks of 64
// elements, each an NF4 code (one of 16 quantiles of the normal distribution)
// times the block's largest magnitude. That is 4.5 bits per element: the code,
// and a float32 for each block. There are two ways to use it:
//   - nf4_storage: the weight is kept and sent in this form. fully_shard
//     quantizes the whole parameter once; each rank keeps a share of the
//     blocks, for any rank count, and a gather turns them into the parameter in
//     the computation's dtype. module->parameters() and a checkpoint contain
//     the blocks: uint8 [blocks, 36], as made by pack_nf4, which load on any
//     number of ranks, bit for bit. Weights are in the model before fully_shard
//     is called, or come from such a checkpoint.
//   - nf4_all_gather: the weight is only sent in this form. The shard stays in
//     full precision on the rank and is quantized for each gather. Blocks are
//     cut along the shard's memory, from the first element, so they depend on
//     the rank count; a shard's last block may be short. Checkpoints contain
//     the parameter.
//
// Error. In a block with the largest magnitude m, an element comes back with an
// error of at most 0.152 m (half of the widest gap between codes), before the
// rounding to the computation's dtype. Zero and +-m are exact; a block that
// contains an infinity or NaN comes back as NaN.
#ifndef FSDP_EXTENSIONS_NF4_H_
#define FSDP_EXTENSIONS_NF4_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/engine/all_gather_extension.h"

namespace fsdp {

inline constexpr int64_t kNf4BlockElements = 64;
// 32 bytes for codes, with the even element in the high bits, and a float32,
// which multiplies them.
inline constexpr int64_t kNf4BlockBytes = 36;

struct Nf4Tensor {
  at::Tensor codes;   // uint8 [blocks * 32], the even element in the high bits
  at::Tensor absmax;  // float32 [blocks]
};

// For FullyShardOptions::all_gather_extension_fn, with the parameter. They
// throw c10::ValueError for a parameter that requires grad, because rounding to
// 16 values would lose every small training step.
AllGatherExtension nf4_storage(const at::Tensor& parameter);
AllGatherExtension nf4_all_gather(const at::Tensor& parameter);

// A tensor's blocks, read in row-major order; any shape. The last block is
// filled up with zeros. uint8 [blocks, kNf4BlockBytes], on the tensor's device;
// for a meta tensor, only sizes.
at::Tensor pack_nf4(const at::Tensor& tensor);
// The reverse. Throws c10::ValueError if `packed` cannot hold that many
// elements.
at::Tensor unpack_nf4(const at::Tensor& packed, at::IntArrayRef sizes,
                      c10::ScalarType dtype);

// `tensor` may have any shape; it is read in row-major order.
Nf4Tensor quantize_nf4(const at::Tensor& tensor);
// The first `numel` elements, 1-d.
at::Tensor dequantize_nf4(const Nf4Tensor& quantized, int64_t numel,
                          c10::ScalarType dtype);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_NF4_H_
