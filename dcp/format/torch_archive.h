// What torch.save writes: one object with its tensors, as a zip archive or in
// the format from before PyTorch 1.6. DCP items and .pt files are such
// archives. Pure; thread-compatible.
#ifndef DCP_FORMAT_TORCH_ARCHIVE_H_
#define DCP_FORMAT_TORCH_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/format/read_at.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value.h"
#include "dcp/format/zip_layout.h"
#include "dcp/format/zip_reader.h"

namespace dcp {

struct TorchArchive {
  struct Storage {
    uint64_t payload_offset;  // from the archive's start
    uint64_t size;            // bytes
    uint32_t crc = 0;         // of all bytes; 0 when not recorded
  };

  ValueArena arena;
  Value root;
  bool big_endian = false;
  bool legacy = false;
  bool pickle_has_crc = false;
  // Whether `root` holds something that must not be written again (see
  // CheckInert).
  bool has_unknown_globals = false;
  // Every record of the zip with its CRC, for verification; empty if legacy.
  std::vector<ZipRecord> records;
  absl::flat_hash_map<std::string, Storage> storages;

  // The byte offset of `tensor`'s first element from the archive's start.
  // DataLoss when the storage is absent or shorter than the tensor needs.
  absl::StatusOr<uint64_t> PayloadOffset(const TorchTensor& tensor) const;
};

// Reads only the structure, no payload. `allow_legacy` also accepts the old
// format (for state dict files, never for items of a DCP checkpoint). With
// `check_crcs`, DataLoss for a record that is read here and contradicts its
// CRC-32.
absl::StatusOr<TorchArchive> ReadTorchArchive(uint64_t length,
                                              bool allow_legacy, ReadAt read,
                                              bool check_crcs = false);

// The first directory that torch.save gives the records of a file at `path`:
// its name without the last extension, or "archive" if that is not plain ASCII.
std::string TorchArchiveName(absl::string_view path);

// The layout of an archive that holds `pickle` and storages data/0, data/1, ...
// of the given lengths, under the first directory `name` ("archive" in DCP
// items). Only storages count as payloads between the gaps: gap i (0 <= i < n)
// is before storage i, gap n is behind the last one.
class TorchArchiveLayout {
 public:
  TorchArchiveLayout(absl::string_view name, std::string pickle,
                     std::vector<uint64_t> storage_bytes);

  uint64_t size() const { return zip_.size(); }
  uint64_t payload_offset(size_t i) const;
  uint64_t gap_length(size_t i) const;
  // `crcs` holds those of the storages 0 to i-1, and may hold more.
  std::string Gap(size_t i, absl::Span<const uint32_t> crcs) const;

 private:
  std::string pickle_;
  size_t num_storages_;
  std::vector<uint64_t> storage_bytes_;
  ZipLayout zip_;
};

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_ARCHIVE_H_
