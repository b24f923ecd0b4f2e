// SPDX-License-Identifier: Apache-2.0
// What the transfer of an output must know about its payloads that are mapped
// tensors: how much of the source a block may need, and whether files share
// what they need. Pure; any thread.
//
// [Note: scattered] A row of a transposed matrix needs an element of every row
// of the source. If a batch holds the whole matrix, each byte is read once;
// otherwise the source is read once per batch, or in stripes. So batches of
// such tensors are several times as large as a matrix, as far as memory allows:
// blocks at the ends of a batch hold parts of matrices, which the batches
// before and after it read again.
#ifndef DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_
#define DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_

#include <cstdint>

#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/box.h"

namespace dcp {

// The most bytes of a stored tensor that adjacent elements of `box` of a mapped
// tensor are scattered over; 0 if all are read in the order in which they are
// in the box. See [Note: scattered].
uint64_t ScatteredBytes(const MappedTensor& mapped, const Box& box);

// The most bytes of a stored tensor that adjacent elements of a payload are
// scattered over; 0 if all are read in the order in which they are written. See
// [Note: scattered].
uint64_t ScatteredBytes(const Output& output);

// How many blocks of `block_bytes` a batch should have for that; 0 if the
// number does not matter.
uint64_t BlocksForScattered(uint64_t scattered_bytes, uint64_t block_bytes);

// Whether a file needs stripes of a stored tensor of which another file needs
// other parts; see [Note: interleaving].
bool MappedFilesShareSources(const Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_MAPPED_PAYLOADS_H_
