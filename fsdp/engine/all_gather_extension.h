// SPDX-License-Identifier: Apache-2.0
// AllGatherExtension: lets a parameter travel between ranks in another form
// than the shard, such as scaled to float8 or quantized to NF4, and be stored
// in that form. A pair of functions stands for PyTorch's fsdp_pre_all_gather
// and fsdp_post_all_gather, a third for torchao's precomputation over all
// parameters together, and a fourth for the tensor subclass that has them.
#ifndef FSDP_ENGINE_ALL_GATHER_EXTENSION_H_
#define FSDP_ENGINE_ALL_GATHER_EXTENSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/mesh/device_mesh.h"

namespace fsdp {

struct AllGatherExtension {
  // Further arguments to pre_all_gather, besides the shard.
  struct Context {
    DeviceMesh mesh;            // only the shard axis
    std::vector<int64_t> size;  // the whole parameter's
    std::optional<c10::ScalarType> param_dtype;
    // For each number from local_maximum, the largest over all ranks in the
    // mesh; undefined if local_maximum is unset.
    at::Tensor maximum = {};
  };
  struct Inputs {
    // This rank's contribution: contiguous tensors with any dtypes and the same
    // sizes on every rank, as for the padded shard.
    std::vector<at::Tensor> tensors;
    // Passed to post_all_gather on this rank.
    std::vector<at::Tensor> metadata;
  };

  // `shard`: this rank's part, padded with zeros to the largest part's size. On
  // the compute device, under no_grad; may communicate over the mesh.
  std::function<Inputs(const at::Tensor& shard, const Context& context)>
      pre_all_gather;

  // `outputs[i]` holds tensors[i] from all ranks, joined on dimension 0. Writes
  // the parameter, in `dst`'s dtype and padded like `shard` times the rank
  // count, into `dst`. With `store`, `dst` has the parameter's own sizes.
  std::function<void(const std::vector<at::Tensor>& outputs,
                     const std::vector<at::Tensor>& metadata, at::Tensor dst)>
      post_all_gather;

  // If set, returns numbers computed from the shard: a one-dimensional float32
  // tensor with the same size on every rank. The engine takes their maximum
  // over all ranks, with one all-reduce for a whole group, and passes it to
  // pre_all_gather.
  std::function<at::Tensor(const at::Tensor& shard)> local_maximum = {};

  // If set, a frozen parameter is stored in another form: fully_shard calls
  // this with the whole parameter, and each rank keeps its own rows of the
  // result, a tensor with at least one dimension. From then on
  // module->parameters(), DTensors and state dicts have the stored form, and
  // pre_all_gather receives rows in that form. A layer's member still has the
  // original form while it is gathered. On the meta device only sizes and dtype
  // matter. Unset: the parameter itself is stored.
  std::function<at::Tensor(const at::Tensor& parameter)> store = {};
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_ALL_GATHER_EXTENSION_H_
