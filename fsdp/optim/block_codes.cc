// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/optim/compact_adamw_test.cc.
#include "fsdp/optim/block_codes.h"

#include <tuple>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/bucketize.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/sort.h"
#include "ATen/ops/tensor.h"

namespace fsdp::optim {
namespace {

// [rows, blocks, kCodeBlock], with zeros behind each row.
at::Tensor InBlocks(const at::Tensor& values) {
  const at::Tensor rows = values.flatten(1);
  const int64_t num = NumBlocks(rows.size(1));
  return at::constant_pad_nd(rows, {0, num * kCodeBlock - rows.size(1)})
      .view({rows.size(0), num, kCodeBlock});
}

// The opposite.
at::Tensor FromBlocks(const at::Tensor& blocks, at::IntArrayRef shape) {
  int64_t length = 1;
  for (const int64_t size : shape.slice(1)) length *= size;
  return blocks.flatten(1).narrow(1, 0, length).reshape(shape);
}

}  // namespace

// For each exponent of ten the map has the middles of even steps from 0.1 to 1,
// and twice as many for the next one.
at::Tensor DynamicMap(bool is_signed, at::Device device) {
  constexpr double kPowers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::vector<at::Tensor> parts = {at::tensor({0.0F, 1.0F})};
  int64_t num = is_signed ? 1 : 2;
  for (const double power : kPowers) {
    const at::Tensor bounds =
        at::linspace(0.1, 1, num + 1, at::TensorOptions(at::kFloat));
    const at::Tensor middles =
        (bounds.narrow(0, 0, num) + bounds.narrow(0, 1, num)) / 2.0;
    parts.push_back(middles * power);
    if (is_signed) parts.push_back(middles * -power);
    num *= 2;
  }
  return std::get<0>(at::sort(at::cat(parts))).to(device);
}

int64_t NumBlocks(int64_t row_length) {
  return (row_length + kCodeBlock - 1) / kCodeBlock;
}

BlockCodes EncodeBlocks(const at::Tensor& values, const at::Tensor& map) {
  constexpr double kLeastScale = 1e-12;
  const at::Tensor blocks = InBlocks(values);
  const at::Tensor scales =
      blocks.numel() == 0
          ? blocks.sum(-1)
          : blocks.abs().amax(at::IntArrayRef{-1}).clamp_min(kLeastScale);
  const at::Tensor below = map.narrow(0, 0, map.size(0) - 1);
  const at::Tensor above = map.narrow(0, 1, map.size(0) - 1);
  const at::Tensor codes = at::bucketize(blocks / scales.unsqueeze(-1),
                                         below + (above - below) * 0.5,
                                         /*out_int32=*/true, /*right=*/true);
  return {.codes = FromBlocks(codes.to(at::kByte), values.sizes()),
          .scales = scales};
}

at::Tensor DecodeBlocks(const BlockCodes& blocks, const at::Tensor& map) {
  const at::Tensor values =
      map.index_select(0, InBlocks(blocks.codes).flatten().to(at::kInt));
  return FromBlocks(
      values.view({blocks.scales.size(0), blocks.scales.size(1), kCodeBlock}) *
          blocks.scales.unsqueeze(-1),
      blocks.codes.sizes());
}

}  // namespace fsdp::optim
