// ReadRanges: gives the bytes of stretches of a checkpoint's files in order,
// through the pipeline, in a fixed memory. For those who want to see bytes, not
// elements. Blocking; any thread.
#ifndef DCP_CHECKPOINT_RANGE_READER_H_
#define DCP_CHECKPOINT_RANGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/source_files.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// Of one of the files.
struct FileRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct ReadRangesOptions {
  uint64_t memory_bytes = 0;  // the most; kMinMemoryBytes at least
  std::stop_token stop = {};
  TransferStats* stats = nullptr;  // optional
};

// Calls `visit` with all bytes of the first range, from `begin` in it on, then
// with those of the next. Ranges are inside their files; in the order of the
// files they are read fastest. An error of `visit` ends it.
absl::Status ReadRanges(FileSystem& fs, SourceFiles& files,
                        absl::Span<const FileRange> ranges,
                        const ReadRangesOptions& options,
                        absl::FunctionRef<absl::Status(
                            size_t range, uint64_t begin, ByteSpan bytes)>
                            visit);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_RANGE_READER_H_
