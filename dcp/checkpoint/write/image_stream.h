// SPDX-License-Identifier: Apache-2.0
// StreamImage: carries out an Output with one file into a stream, block by
// block in file order. Nothing is written to a disk. Blocking; any thread.
#ifndef DCP_CHECKPOINT_WRITE_IMAGE_STREAM_H_
#define DCP_CHECKPOINT_WRITE_IMAGE_STREAM_H_

#include "absl/status/status.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/write/byte_stream.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// Passes the bytes of the only file in `output` to `stream`. An error from
// `stream` ends the transfer. Uses one lane; `options.steps` must be null, and
// `fs` serves reads only. Other errors are those of TransferImages.
absl::Status StreamImage(FileSystem& fs, Output& output, ByteStream& stream,
                         const ImageTransferOptions& options,
                         TransferStats& stats);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_IMAGE_STREAM_H_
