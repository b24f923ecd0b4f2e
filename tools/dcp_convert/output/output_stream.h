// SPDX-License-Identifier: Apache-2.0
// OutputStream: a descriptor, usually standard output, as a stream's end. It
// may be a pipe, a socket or a file that the shell opened, but not a terminal.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_OUTPUT_STREAM_H_
#define TOOLS_DCP_CONVERT_OUTPUT_OUTPUT_STREAM_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/write/byte_stream.h"

namespace dcp::tools {

// Writes to `descriptor`, which the caller keeps. Waits as long as a slow
// reader takes, unless stopped. InvalidArgument if it is a terminal or not
// open. The stream fails with Aborted when the reader is gone, and with
// Cancelled after a stop. SIGPIPE must be ignored.
absl::StatusOr<ByteStream> OpenOutputStream(int descriptor,
                                            std::stop_token stop);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_OUTPUT_STREAM_H_
