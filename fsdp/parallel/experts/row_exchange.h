// SPDX-License-Identifier: Apache-2.0
// ExchangeRows: an all-to-all of as many rows as each rank has for each other
// one, which autograd follows. For the threads of forward and backward.
#ifndef FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
#define FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// The first sent[0] rows of `rows` go to rank 0, the next sent[1] to rank 1,
// and so on; the result has received[r] rows from each rank r, in the order of
// ranks. Zero rows are allowed everywhere. Gradients take the way back.
// Collective over `group`, in backward too; errors are those of
// mesh_collectives.h.
at::Tensor ExchangeRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
