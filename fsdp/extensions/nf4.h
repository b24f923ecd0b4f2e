// A frozen weight that travels in four bits, as QLoRA stores its base model:
// blocks of 64 elements, each a code of NF4 (16 quantiles of the normal
// distribution) times the largest magnitude of its block. The shard stays in
// full precision on its rank and is quantized for each gather, which moves 4.5
// bits per element: the code, and a float32 for each block. Blocks are cut
// along the shard's memory, from its first element, so they depend on the
// number of ranks; the last one of a shard may be short. One rank alone gathers
// nothing, so there nothing is rounded.
//
// Error. An element of a block whose largest magnitude is m comes back with an
// error of at most 0.152 m (half of the widest gap between codes), before the
// rounding to the dtype that is computed in. Zero and +-m are exact; a block
// that holds an infinity or NaN comes back as NaN.
#ifndef FSDP_EXTENSIONS_NF4_H_
#define FSDP_EXTENSIONS_NF4_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/all_gather_extension.h"

namespace fsdp {

inline constexpr int64_t kNf4BlockElements = 64;

struct Nf4Tensor {
  at::Tensor codes;   // uint8 [blocks * 32], the even element in the high bits
  at::Tensor absmax;  // float32 [blocks]
};

// For FullyShardOptions::all_gather_extension_fn, with the parameter that it
// is given. Throws c10::ValueError for one that requires grad: training what is
// rounded to 16 values would lose every small step.
AllGatherExtension nf4_all_gather(const at::Tensor& parameter);

// Of any shape; read in row-major order.
Nf4Tensor quantize_nf4(const at::Tensor& tensor);
// The first `numel` elements, 1-d.
at::Tensor dequantize_nf4(const Nf4Tensor& quantized, int64_t numel,
                          c10::ScalarType dtype);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_NF4_H_
