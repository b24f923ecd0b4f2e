// SPDX-License-Identifier: Apache-2.0
// The files that torch.save writes: one object with tensors, as a zip archive
// or in the format from before PyTorch 1.6. DCP items and .pt files are such
// archives. Pure; thread-compatible.
#ifndef DCP_FORMAT_TORCH_TORCH_ARCHIVE_H_
#define DCP_FORMAT_TORCH_TORCH_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value.h"
#include "dcp/format/zip/zip_reader.h"

namespace dcp {

struct TorchArchive {
  struct Storage {
    uint64_t payload_offset;  // from the archive's start
    uint64_t size;            // bytes
    uint32_t crc = 0;         // over all bytes; 0 when not recorded
  };

  ValueArena arena;
  Value root;
  bool big_endian = false;
  bool legacy = false;
  bool pickle_has_crc = false;
  // Whether `root` holds a value that must not be written again (see
  // CheckInert).
  bool has_unknown_globals = false;
  // Every zip record with the CRC, for verification; empty if legacy.
  std::vector<ZipRecord> records;
  absl::flat_hash_map<std::string, Storage> storages;

  // The byte offset of `tensor`'s first element from the archive's start.
  // DataLoss when the storage is absent or shorter than the tensor needs.
  absl::StatusOr<uint64_t> PayloadOffset(const TorchTensor& tensor) const;
};

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_TORCH_ARCHIVE_H_
