// SPDX-License-Identifier: Apache-2.0

#include "fsdp/extensions/nf4.h"

#include <array>
#include <cmath>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/ops/bucketize.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"
#include "c10/util/Exception.h"
#include "c10/util/accumulate.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/extensions/join_shards.h"

namespace fsdp {
namespace {

// Quantiles of the normal distribution, scaled to [-1, 1], including zero
// (Dettmers et al., QLoRA, appendix E).
constexpr std::array<float, 16> kCodes = {-1.0F,
                                          -0.6961928009986877F,
                                          -0.5250730514526367F,
                                          -0.39491748809814453F,
                                          -0.28444138169288635F,
                                          -0.18477343022823334F,
                                          -0.09105003625154495F,
                                          0.0F,
                                          0.07958029955625534F,
                                          0.16093020141124725F,
                                          0.24611230194568634F,
                                          0.33791524171829224F,
                                          0.44070982933044434F,
                                          0.5626170039176941F,
                                          0.7229568362236023F,
                                          1.0F};

struct Tables {
  at::Tensor codes;
  // Between neighbouring codes: a value beyond boundary i has code i + 1.
  at::Tensor boundaries;
};

Tables MakeTables(c10::Device device) {
  const EngineScope real;  // even while MetaDeviceGuard builds a model
  const at::Tensor codes = at::tensor(at::ArrayRef<float>(kCodes), at::kFloat);
  const at::Tensor boundaries =
      (codes.narrow(0, 0, 15) + codes.narrow(0, 1, 15)) / 2;
  return {.codes = codes.to(device), .boundaries = boundaries.to(device)};
}

// A device's tables, from any thread. They are copied to it once, because the
// host waits for the device at each copy. After that wait, work on every stream
// may read them, and they are never freed.
const Tables& TablesOn(c10::Device device) {
  static auto* const mutex = new std::mutex;
  static auto* const tables = new std::unordered_map<c10::Device, Tables>;
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    const auto found = tables->find(device);
    if (found != tables->end()) return found->second;
  }
  Tables made = MakeTables(device);
  const std::lock_guard<std::mutex> lock(*mutex);
  return tables->emplace(device, std::move(made)).first->second;
}

int64_t NumBlocks(int64_t numel) {
  return (numel + kNf4BlockElements - 1) / kNf4BlockElements;
}

AllGatherExtension::Inputs Nf4PreAllGather(
    const at::Tensor& shard, const AllGatherExtension::Context& /*context*/) {
  Nf4Tensor quantized = quantize_nf4(shard);
  return {.tensors = {quantized.codes, quantized.absmax},
          .metadata = {SizesAsMetadata(shard)}};
}

// Blocks are sent as they are stored.
AllGatherExtension::Inputs GatherBlocks(
    const at::Tensor& shard, const AllGatherExtension::Context& /*context*/) {
  return {.tensors = {shard}, .metadata = {}};
}

void UnpackBlocks(const std::vector<at::Tensor>& outputs,
                  const std::vector<at::Tensor>& /*metadata*/, at::Tensor dst) {
  dst.copy_(unpack_nf4(outputs[0], dst.sizes(), dst.scalar_type()));
}

void CheckFrozen(const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(c10::isFloatingType(parameter.scalar_type()),
                    "NF4 requires a floating-point parameter, not ",
                    parameter.scalar_type());
  TORCH_CHECK_VALUE(!parameter.requires_grad(), "NF4: a parameter of shape ",
                    parameter.sizes(),
                    " requires grad, but NF4 is for frozen weights: call "
                    "requires_grad_(false) on it");
}

void Nf4PostAllGather(const std::vector<at::Tensor>& outputs,
                      const std::vector<at::Tensor>& metadata, at::Tensor dst) {
  const int64_t shard_numel = metadata[0].prod().item<int64_t>();
  if (shard_numel == 0) return;
  // Each rank's last block may be short, so its padding lies between shards.
  const at::Tensor padded =
      dequantize_nf4({.codes = outputs[0], .absmax = outputs[1]},
                     outputs[1].numel() * kNf4BlockElements, at::kFloat);
  JoinShards(padded.view({-1, NumBlocks(shard_numel) * kNf4BlockElements})
                 .narrow(1, 0, shard_numel)
                 .contiguous(),
             metadata[0], dst);
}

}  // namespace

Nf4Tensor quantize_nf4(const at::Tensor& tensor) {
  const int64_t numel = tensor.numel();
  const int64_t num_blocks = NumBlocks(numel);
  at::Tensor blocks = tensor.new_zeros({num_blocks * kNf4BlockElements},
                                       tensor.options().dtype(at::kFloat));
  blocks.narrow(0, 0, numel).copy_(tensor.detach().reshape({-1}));
  blocks = blocks.view({num_blocks, kNf4BlockElements});
  at::Tensor absmax = blocks.abs().amax({1});
  // Codes have no NaN, so the block's factor carries it.
  absmax.masked_fill_(absmax.isinf(), NAN);
  const at::Tensor factors = absmax.masked_fill(absmax == 0, 1).unsqueeze(1);
  const at::Tensor codes =
      at::bucketize(blocks / factors, TablesOn(tensor.device()).boundaries,
                    /*out_int32=*/true)
          .to(at::kByte)
          .view({-1, 2});
  return {.codes = codes.select(1, 0) * 16 + codes.select(1, 1),
          .absmax = absmax};
}

at::Tensor dequantize_nf4(const Nf4Tensor& quantized, int64_t numel,
                          c10::ScalarType dtype) {
  const at::Tensor& packed = quantized.codes;
  TORCH_CHECK_VALUE(
      numel >= 0 &&
          packed.numel() * 2 == quantized.absmax.numel() * kNf4BlockElements &&
          numel <= packed.numel() * 2,
      "dequantize_nf4: ", numel, " elements do not fit ", packed.numel(),
      " bytes of codes and ", quantized.absmax.numel(), " blocks");
  const at::Tensor codes =
      at::stack({packed.bitwise_right_shift(4), packed.bitwise_and(15)}, 1);
  const at::Tensor values =
      TablesOn(packed.device())
          .codes.index_select(0, codes.view({-1}).to(at::kInt))
          .view({-1, kNf4BlockElements});
  return (values * quantized.absmax.unsqueeze(1))
      .view({-1})
      .narrow(0, 0, numel)
      .to(dtype);
}

at::Tensor pack_nf4(const at::Tensor& tensor) {
  if (tensor.is_meta()) {
    return at::empty({NumBlocks(tensor.numel()), kNf4BlockBytes},
                     tensor.options().dtype(at::kByte));
  }
  const Nf4Tensor quantized = quantize_nf4(tensor);
  return at::cat({quantized.codes.view({-1, kNf4BlockElements / 2}),
                  quantized.absmax.view({-1, 1}).view(at::kByte)},
                 1);
}

at::Tensor unpack_nf4(const at::Tensor& packed, at::IntArrayRef sizes,
                      c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(packed.scalar_type() == at::kByte && packed.dim() == 2 &&
                        packed.size(1) == kNf4BlockBytes,
                    "unpack_nf4 of a ", packed.scalar_type(), " tensor of ",
                    packed.sizes(), "; blocks are uint8 [blocks, ",
                    kNf4BlockBytes, "]");
  const int64_t code_bytes = kNf4BlockElements / 2;
  const at::Tensor absmax =
      packed.narrow(1, code_bytes, kNf4BlockBytes - code_bytes).contiguous();
  return dequantize_nf4({.codes = packed.narrow(1, 0, code_bytes).reshape({-1}),
                         .absmax = absmax.view(at::kFloat).view({-1})},
                        c10::multiply_integers(sizes), dtype)
      .view(sizes);
}

AllGatherExtension nf4_storage(const at::Tensor& parameter) {
  CheckFrozen(parameter);
  return {.pre_all_gather = GatherBlocks,
          .post_all_gather = UnpackBlocks,
          .store = pack_nf4};
}

AllGatherExtension nf4_all_gather(const at::Tensor& parameter) {
  CheckFrozen(parameter);
  return {.pre_all_gather = Nf4PreAllGather,
          .post_all_gather = Nf4PostAllGather};
}

}  // namespace fsdp
