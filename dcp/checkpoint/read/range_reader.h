// SPDX-License-Identifier: Apache-2.0
// ReadRanges: reads stretches of a checkpoint's files in order, through the
// pipeline, with a fixed amount of memory. For callers that need bytes, not
// elements. Blocking; any thread.
#ifndef DCP_CHECKPOINT_READ_RANGE_READER_H_
#define DCP_CHECKPOINT_READ_RANGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// A byte range in one file.
struct FileRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct ReadRangesOptions {
  uint64_t memory_bytes = 0;  // the maximum; at least kMinMemoryBytes
  std::stop_token stop = {};
  TransferStats* stats = nullptr;  // optional
};

// Calls `visit` with all bytes in the first range, from position `begin` in it,
// then with the next range's bytes, and so on. Ranges must be inside their
// files; reading is fastest if they are in file order. An error from `visit`
// ends the reading.
absl::Status ReadRanges(FileSystem& fs, SourceFiles& files,
                        absl::Span<const FileRange> ranges,
                        const ReadRangesOptions& options,
                        absl::FunctionRef<absl::Status(
                            size_t range, uint64_t begin, ByteSpan bytes)>
                            visit);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_RANGE_READER_H_
