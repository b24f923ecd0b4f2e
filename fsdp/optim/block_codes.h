// SPDX-License-Identifier: Apache-2.0
// Moments in 8 bits: a code for each element, and a scale for each block, as
// bitsandbytes and torchao hold them (arXiv 2110.02861). A code is the number
// of a value in a map from -1 or 0 to 1; the element is that value times the
// block's greatest magnitude. Blocks are parts of rows, with 256 elements or
// fewer at the row's end, so that shards with other rows have the same blocks.
// Where 256 divides the row, they are the blocks of those libraries. For
// the thread that trains; no communication.
#ifndef FSDP_OPTIM_BLOCK_CODES_H_
#define FSDP_OPTIM_BLOCK_CODES_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace fsdp::optim {

inline constexpr int64_t kCodeBlock = 256;

// The dynamic map with 256 ascending values, float32: create_dynamic_map in
// both libraries, with the same bits. `is_signed` for a first moment.
at::Tensor DynamicMap(bool is_signed, at::Device device);

// How many blocks a row has: [rows, ...] are `row_length` elements each.
int64_t NumBlocks(int64_t row_length);

struct BlockCodes {
  at::Tensor codes;   // uint8, with the values' shape
  at::Tensor scales;  // float32 [rows, blocks]: each block's greatest magnitude
};

// The nearest codes of float32 `values`, with at least two dimensions; a value
// in the middle gets the greater code. A block of zeros has the scale 1e-12.
BlockCodes EncodeBlocks(const at::Tensor& values, const at::Tensor& map);

// The values of codes, float32 with the codes' shape.
at::Tensor DecodeBlocks(const BlockCodes& blocks, const at::Tensor& map);

}  // namespace fsdp::optim

#endif  // FSDP_OPTIM_BLOCK_CODES_H_
