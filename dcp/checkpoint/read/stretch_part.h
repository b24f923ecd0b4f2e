// SPDX-License-Identifier: Apache-2.0
// StretchPart: the part that one worker has read of a stretch of a file that
// has a checksum. Workers who each read a part check the stretch together. It
// is cut into cells; a worker reads the cells that it begins to their ends, and
// tells the term of each in the CRC-32 of the stretch. Pure, except for
// CheckStretchParts, which is blocking; any thread.
#ifndef DCP_CHECKPOINT_READ_STRETCH_PART_H_
#define DCP_CHECKPOINT_READ_STRETCH_PART_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/read/range_reader.h"
#include "dcp/checkpoint/read/source_check_report.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct StretchPart {
  uint32_t file = 0;  // of the source
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string name;  // of the tensor or object
  // The right one: it is recorded, or is that of bytes that one worker has
  // compared with their digest. Other workers of the stretch do not know it.
  std::optional<uint32_t> crc;
  // What whole cells add to it, by number.
  std::map<uint64_t, uint32_t> cells;

  friend bool operator==(const StretchPart&, const StretchPart&) = default;
};

// The cells of one stretch, as their bytes are seen.
class StretchCells {
 public:
  struct Piece {
    uint64_t cell = 0;
    uint64_t num_bytes = 0;
    uint32_t contribution = 0;
  };
  // Cuts `bytes`, which begin `begin` bytes into a stretch of `length`.
  static std::vector<Piece> Cut(uint64_t begin, ByteSpan bytes,
                                uint64_t length);

  // Each byte of the stretch is added once.
  void Add(const Piece& piece);
  // Those that are whole.
  std::map<uint64_t, uint32_t> Whole(uint64_t length) const;

 private:
  struct Cell {
    uint64_t num_bytes = 0;
    uint32_t contribution = 0;
  };
  std::map<uint64_t, Cell> cells_;
};

// A part, and which of several workers' results it belongs to.
struct OwnedPart {
  uint32_t owner = 0;
  const StretchPart* part = nullptr;
};

// Puts the parts together and compares. Reads the cells that no worker needed.
// The comparisons count in `report`. DataLoss, which names the tensor, where
// the bytes differ from their checksum, or the workers did not see the same
// ones; `wrong` are then the owners of all parts of that stretch.
absl::Status CheckStretchParts(FileSystem& fs, SourceFiles& files,
                               std::vector<OwnedPart> parts,
                               const ReadRangesOptions& options,
                               SourceCheckReport& report,
                               std::vector<uint32_t>& wrong);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_STRETCH_PART_H_
