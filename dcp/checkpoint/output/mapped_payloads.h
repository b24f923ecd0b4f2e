// SPDX-License-Identifier: Apache-2.0
// Facts that an output's transfer needs about payloads that are mapped tensors:
// how much of the source a block may need, and whether files share source
// bytes. Pure; any thread.
//
// [Note: scattered] A row in a transposed matrix needs an element from every
// row in the source. If a batch holds the whole matrix, each byte is read once;
// otherwise the source is read once per batch, or in stripes. So batches with
// such tensors are several times as large as a matrix, as far as memory allows:
// blocks at a batch's ends hold parts of matrices, which the neighbouring
// batches read again.
#ifndef DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_
#define DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_

#include <cstdint>

#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/box.h"

namespace dcp {

// The most bytes in a stored tensor over which adjacent elements of `box` in a
// mapped tensor are scattered; 0 if all are read in the box's order. See [Note:
// scattered].
uint64_t ScatteredBytes(const MappedTensor& mapped, const Box& box);

// The most bytes in a stored tensor over which a payload's adjacent elements
// are scattered; 0 if all are read in the order in which they are written. See
// [Note: scattered].
uint64_t ScatteredBytes(const Output& output);

// How many blocks with `block_bytes` a batch should have for that; 0 if the
// number does not matter.
uint64_t BlocksForScattered(uint64_t scattered_bytes, uint64_t block_bytes);

// Whether two files need stripes from the same stored tensor; see [Note:
// interleaving].
bool MappedFilesShareSources(const Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_
