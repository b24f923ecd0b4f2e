// SPDX-License-Identifier: Apache-2.0
// StretchPart: one worker's part of a file stretch that has a checksum. Workers
// that each read a part check the stretch together. It is cut into cells; a
// worker that needs a cell's first byte reads the whole cell, and records the
// cell's term in the stretch's CRC-32. Pure, except for CheckStretchParts,
// which is blocking; any thread.
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
  uint32_t file = 0;  // in the source
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string name;  // the tensor's or object's
  // The right CRC: it is recorded, or belongs to bytes that one worker has
  // compared with their digest. The stretch's other workers do not know it.
  std::optional<uint32_t> crc;
  // The terms that whole cells add to it, by number.
  std::map<uint64_t, uint32_t> cells;

  friend bool operator==(const StretchPart&, const StretchPart&) = default;
};

// One stretch's cells, as their bytes are seen.
class StretchCells {
 public:
  struct Piece {
    uint64_t cell = 0;
    uint64_t num_bytes = 0;
    uint32_t contribution = 0;
  };
  // Cuts `bytes`, which begin `begin` bytes into a stretch with `length` bytes.
  static std::vector<Piece> Cut(uint64_t begin, ByteSpan bytes,
                                uint64_t length);

  // Each byte of the stretch is added once.
  void Add(const Piece& piece);
  // The whole cells.
  std::map<uint64_t, uint32_t> Whole(uint64_t length) const;

 private:
  struct Cell {
    uint64_t num_bytes = 0;
    uint32_t contribution = 0;
  };
  std::map<uint64_t, Cell> cells_;
};

// A part, and the worker's result that owns it.
struct OwnedPart {
  uint32_t owner = 0;
  const StretchPart* part = nullptr;
};

// Puts the parts together and compares. Reads the cells that no worker needed.
// Counts the comparisons in `report`. DataLoss, which names the tensor, if
// bytes differ from their checksum, or if workers saw different bytes; `wrong`
// then has the owners of all parts of the stretch.
absl::Status CheckStretchParts(FileSystem& fs, SourceFiles& files,
                               std::vector<OwnedPart> parts,
                               const ReadRangesOptions& options,
                               SourceCheckReport& report,
                               std::vector<uint32_t>& wrong);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_STRETCH_PART_H_
