// SPDX-License-Identifier: Apache-2.0
// A frozen weight in four bits, as QLoRA stores its base model: blocks of 64
// elements, each a code of NF4 (16 quantiles of the normal distribution) times
// the largest magnitude of its block. That is 4.5 bits per element: the code,
// and a float32 for each block. There are two ways to use it:
//   - nf4_storage: the weight is kept and sent in this form. fully_shard
//     quantizes the whole parameter once; each rank keeps its share of the
//     blocks, whatever the number of ranks, and a gather turns them into the
//     parameter in the dtype of the computation. module->parameters() and a
//     checkpoint contain the blocks: uint8 [number of blocks, 36], as made by
//     pack_nf4, which load on any number of ranks, bit for bit. Weights are in
//     the model before fully_shard is called, or come from such a checkpoint.
//   - nf4_all_gather: the weight is only sent in this form. The shard stays in
//     full precision on its rank and is quantized for each gather. Blocks are
//     cut along the shard's memory, from its first element, so they depend on
//     the number of ranks; the last one of a shard may be short. Checkpoints
//     contain the parameter.
//
// Error. An element of a block whose largest magnitude is m comes back with an
// error of at most 0.152 m (half of the widest gap between codes), before the
// rounding to the dtype of the computation. Zero and +-m are exact; a block
// that contains an infinity or NaN comes back as NaN.
#ifndef FSDP_EXTENSIONS_NF4_H_
#define FSDP_EXTENSIONS_NF4_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/engine/all_gather_extension.h"

namespace fsdp {

inline constexpr int64_t kNf4BlockElements = 64;
// 32 bytes of codes, with the even element in the high bits, and the float32 by
// which they are multiplied.
inline constexpr int64_t kNf4BlockBytes = 36;

struct Nf4Tensor {
  at::Tensor codes;   // uint8 [blocks * 32], the even element in the high bits
  at::Tensor absmax;  // float32 [blocks]
};

// For FullyShardOptions::all_gather_extension_fn, with its parameter. They
// throw c10::ValueError for a parameter that requires grad, because one that is
// rounded to 16 values would lose every small step of training.
AllGatherExtension nf4_storage(const at::Tensor& parameter);
AllGatherExtension nf4_all_gather(const at::Tensor& parameter);

// The blocks of a tensor of any shape, read in row-major order; the last one is
// filled up with zeros. uint8 [blocks, kNf4BlockBytes], on the tensor's device;
// for a meta tensor, only sizes.
at::Tensor pack_nf4(const at::Tensor& tensor);
// The reverse. Throws c10::ValueError if `packed` cannot be the blocks of that
// many elements.
at::Tensor unpack_nf4(const at::Tensor& packed, at::IntArrayRef sizes,
                      c10::ScalarType dtype);

// `tensor` may have any shape; it is read in row-major order.
Nf4Tensor quantize_nf4(const at::Tensor& tensor);
// The first `numel` elements, 1-d.
at::Tensor dequantize_nf4(const Nf4Tensor& quantized, int64_t numel,
                          c10::ScalarType dtype);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_NF4_H_
