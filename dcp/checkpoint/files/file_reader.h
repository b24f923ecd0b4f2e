// SPDX-License-Identifier: Apache-2.0
// FileReader: gives a parser the bytes in a part of an open file (see
// format/read_at.h). It reads a little ahead, so a parser's many small reads
// become few. Used by one thread.
#ifndef DCP_CHECKPOINT_FILES_FILE_READER_H_
#define DCP_CHECKPOINT_FILES_FILE_READER_H_

#include <cstdint>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"

namespace dcp {

class FileReader {
 public:
  // Bytes [start, start + length) of `file`; `fs` must outlive this. Reads are
  // Cancelled once `stop` is requested.
  FileReader(FileSystem& fs, File file, uint64_t start, uint64_t length,
             std::stop_token stop = {})
      : fs_(fs),
        file_(file),
        start_(start),
        length_(length),
        stop_(std::move(stop)) {}

  // A function that can be used as ReadAt; this must outlive it.
  auto read_at() {
    return [this](uint64_t offset, uint64_t length) {
      return Read(offset, length);
    };
  }

  // `offset` counts from `start`. The span is valid until the next call.
  absl::StatusOr<ByteSpan> Read(uint64_t offset, uint64_t length);

 private:
  FileSystem& fs_;
  const File file_;
  const uint64_t start_;
  const uint64_t length_;
  const std::stop_token stop_;
  uint64_t buffer_offset_ = 0;
  std::vector<uint8_t> buffer_;
};

// Whether an error from reading and parsing is about the bytes themselves.
// Other errors are about access: a store that does not answer, a permission,
// memory, descriptors, a request to stop.
bool IsAboutBytes(const absl::Status& status);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_FILE_READER_H_
