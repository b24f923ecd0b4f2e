// SPDX-License-Identifier: Apache-2.0
// Interleaving: whether an output's files are written side by side, so that the
// source is read only once. Pure; any thread.
//
// [Note: interleaving] When a tensor stored in rows is written in columns, each
// output file needs a stripe of every row. File by file, the source would be
// read once per file. In that case the files of a wave advance side by side:
// the next block always goes to the file that has advanced least in the
// sequence of tensors. The blocks of one batch then need the same stretch of
// the source, which is read once for all blocks. For that, every file must have
// a part in every batch, the same number of times: if there are more files than
// blocks, the blocks are cut into pieces.
#ifndef DCP_CHECKPOINT_OUTPUT_INTERLEAVING_H_
#define DCP_CHECKPOINT_OUTPUT_INTERLEAVING_H_

#include "dcp/checkpoint/output/output.h"

namespace dcp {

// Whether a file in `output` needs stripes of a stored tensor.
bool NeedsInterleaving(const Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_INTERLEAVING_H_
