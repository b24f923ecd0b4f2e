// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/expert_order.h"

#include "ATen/ops/arange.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/repeat_interleave.h"
#include "ATen/ops/zeros.h"

namespace fsdp {

at::Tensor CountPerExpert(const at::Tensor& experts, int64_t num_experts) {
  const at::Tensor flat = experts.reshape({-1});
  // bincount would wait for the device to learn the largest number.
  return at::zeros({num_experts}, flat.options())
      .scatter_add_(0, flat, at::ones_like(flat));
}

at::Tensor ByExpert(const at::Tensor& counts, int64_t num_rows) {
  const at::Tensor expert =
      at::arange(counts.size(1), counts.options()).repeat({counts.size(0)});
  return at::repeat_interleave(expert, counts.reshape({-1}), /*dim=*/0,
                               num_rows)
      .argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
}

at::Tensor Inverse(const at::Tensor& order) {
  return at::empty_like(order).scatter_(
      0, order, at::arange(order.size(0), order.options()));
}

AlignedRows Align(const at::Tensor& counts, int64_t num_rows,
                  int64_t alignment) {
  const at::Tensor padded =
      (counts + (alignment - 1)).floor_divide(alignment) * alignment;
  const at::Tensor ends = padded.cumsum(0);
  // How far each expert's rows move.
  const at::Tensor shift = (ends - padded) - (counts.cumsum(0) - counts);
  return {.places = at::arange(num_rows, counts.options()) +
                    at::repeat_interleave(shift, counts, /*dim=*/0, num_rows),
          .ends = ends.to(at::kInt),
          .num_places = num_rows + counts.size(0) * (alignment - 1)};
}

}  // namespace fsdp
