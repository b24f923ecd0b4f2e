// SPDX-License-Identifier: Apache-2.0
// ExchangeRows: an all-to-all in which each pair of ranks may exchange any
// number of rows, and which autograd follows. For the threads of forward and
// backward.
#ifndef FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
#define FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// The first sent[0] rows in `rows` go to rank 0, the next sent[1] to rank 1,
// and so on; the result has received[r] rows from each rank r, by rank. Zero
// rows are allowed everywhere. Gradients take the way back. Collective over
// `group`, in backward too; errors are those in mesh_collectives.h.
at::Tensor ExchangeRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
