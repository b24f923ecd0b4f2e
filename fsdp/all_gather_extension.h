// AllGatherExtension: lets a parameter travel between ranks as something else
// than its shard: scaled to float8, quantized to NF4; and be kept in such a
// form. PyTorch's fsdp_pre_all_gather and fsdp_post_all_gather, as a pair of
// functions, and the tensor subclass that has them, as a third.
#ifndef FSDP_ALL_GATHER_EXTENSION_H_
#define FSDP_ALL_GATHER_EXTENSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/device_mesh.h"

namespace fsdp {

struct AllGatherExtension {
  // What pre_all_gather is told.
  struct Context {
    DeviceMesh mesh;            // of the shard axis alone
    std::vector<int64_t> size;  // of the whole parameter
    std::optional<c10::ScalarType> param_dtype;
  };
  struct Inputs {
    // What this rank contributes: any dtypes, contiguous, and of the same
    // sizes on every rank; the shard is given padded, so that is natural.
    std::vector<at::Tensor> tensors;
    // Handed to post_all_gather of this rank.
    std::vector<at::Tensor> metadata;
  };

  // `shard`: this rank's part, padded with zeros to the size of the largest.
  // On the compute device, under no_grad; may communicate over the mesh.
  std::function<Inputs(const at::Tensor& shard, const Context& context)>
      pre_all_gather;

  // `outputs[i]` holds tensors[i] of all ranks, joined on dimension 0. Writes
  // the parameter, in `dst`'s dtype and padded like `shard` times the number
  // of ranks, into `dst`. With `store`, `dst` has the parameter's own sizes.
  std::function<void(const std::vector<at::Tensor>& outputs,
                     const std::vector<at::Tensor>& metadata, at::Tensor dst)>
      post_all_gather;

  // Set where a frozen parameter is kept in another form: makes it of the whole
  // parameter, when fully_shard is called; a tensor of at least one dimension,
  // of which each rank keeps its rows. That is what module->parameters(),
  // DTensors and state dicts have from then on, and whose rows pre_all_gather
  // is given. A layer's member is what it was, while it is gathered. On the
  // meta device sizes and dtype alone matter. Unset: the parameter itself.
  std::function<at::Tensor(const at::Tensor& parameter)> store = {};
};

}  // namespace fsdp

#endif  // FSDP_ALL_GATHER_EXTENSION_H_
