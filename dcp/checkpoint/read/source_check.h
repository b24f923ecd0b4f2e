// SPDX-License-Identifier: Apache-2.0
// SourceCheck: compares the bytes that a conversion or a load reads with the
// checksums that the source records, so that damage is found at the source
// instead of getting a fresh checksum at the destination. It sees each read;
// only Finish reads anything itself. See "What a conversion checks" in the
// README.
//
// The lanes of one transfer share it: Saw is thread-safe. Finish and report are
// called by one thread after the lanes are done.
#ifndef DCP_CHECKPOINT_READ_SOURCE_CHECK_H_
#define DCP_CHECKPOINT_READ_SOURCE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/crc32_pieces.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/read/range_reader.h"
#include "dcp/checkpoint/read/source_check_report.h"
#include "dcp/checkpoint/read/stretch_part.h"
#include "dcp/io/file_system.h"

namespace dcp {

class SourceCheck {
 public:
  // How much Finish reads of a stretch that was only partly seen.
  enum class Missing : uint8_t {
    kNothing,  // the stretch stays unchecked
    kLittle,   // the rest, if it is not more than the seen part
    // The rest of each cell with its first byte seen: other workers see the
    // other cells. If the stretch has only a digest, one worker reads all.
    kCells,
    kMovedBytes,  // the rest, if an earlier run has moved it
  };

  // Checks the given entries in `checkpoint`, which must be located. `fs` and
  // `checkpoint` must outlive the check. DataLoss when digests are needed and
  // their file is malformed.
  static absl::StatusOr<std::unique_ptr<SourceCheck>> Make(
      FileSystem& fs, Checkpoint& checkpoint,
      absl::Span<const uint32_t> entries);
  // Makes one of a conversion's several checks, for some chunks. The sorted
  // chunks `owned` belong to no other check, and count as unchecked here if
  // they have no checksum. End it with Finish(kCells), after which parts() has
  // the rest.
  static absl::StatusOr<std::unique_ptr<SourceCheck>> MakeOneOfSeveral(
      FileSystem& fs, Checkpoint& checkpoint,
      absl::Span<const EntryChunk> chunks, std::vector<EntryChunk> owned);

  // `bytes` were read at `offset` in a file of the checkpoint. Calls may come
  // in any order; repeated bytes are ignored. DataLoss, which names the tensor,
  // as soon as a stretch is complete and the CRC-32 differs.
  absl::Status Saw(uint32_t file, uint64_t offset, ByteSpan bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the check: reads missing parts, and reads again the stretches that
  // have only a digest, which must match the bytes seen before.
  absl::Status Finish(const ReadRangesOptions& options, Missing missing);

  SourceCheckReport report() const ABSL_LOCKS_EXCLUDED(mutex_);

  // After Finish(kCells): this check's parts for CheckStretchParts.
  std::vector<StretchPart> parts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For a plan, after which the check must not be used: WouldSee notes that
  // bytes would be read; BytesToFinish returns how many more bytes Finish would
  // read.
  void WouldSee(uint32_t file, uint64_t offset, uint64_t length)
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t BytesToFinish(Missing missing) const ABSL_LOCKS_EXCLUDED(mutex_);

  // The checkpoint's files.
  SourceFiles& files() { return checkpoint_.files(); }

 private:
  // A stretch in a file, with a checksum. Stretches do not overlap.
  struct Range {
    uint32_t file = 0;
    EntryChunk chunk;  // that owns it, or the first such
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<uint32_t> crc = std::nullopt;
    std::optional<uint64_t> digest = std::nullopt;  // if there is no CRC
    uint64_t num_items = 0;
    // The seen stretches, from the key to the value, as offsets in the file.
    absl::btree_map<uint64_t, uint64_t> seen = {};
    uint64_t num_bytes_seen = 0;
    uint64_t num_bytes_added = 0;  // to `sum`
    Crc32Pieces sum = {};
    StretchCells cells = {};  // for one of several checks
    bool checked = false;

    bool complete() const { return num_bytes_added == length; }
  };
  using Stretch = std::pair<uint64_t, uint64_t>;  // begin and end in a file

  SourceCheck(FileSystem& fs, Checkpoint& checkpoint)
      : fs_(fs), checkpoint_(checkpoint) {}

  static absl::StatusOr<std::unique_ptr<SourceCheck>> Begin(
      std::unique_ptr<SourceCheck> check, absl::Span<const EntryChunk> chunks);
  void Collect(absl::Span<const EntryChunk> chunks);
  void AddChunk(const EntryChunk& chunk, const TensorEntry& tensor, size_t c);
  absl::Status AddDigests();
  void SortByFile();
  void MergeRanges();
  void CountUnchecked(const EntryChunk& chunk, uint64_t num_bytes);
  std::vector<Stretch> Claim(Range& range, uint64_t begin, uint64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Range>::iterator FirstBeyond(uint32_t file, uint64_t offset);
  bool IsWanted(const Range& range, Missing missing) const;
  bool IsOwn(const EntryChunk& chunk) const;
  void AddMissing(const Range& range, Missing missing,
                  std::vector<FileRange>& stretches) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SawInRange(Range& range, uint64_t offset, ByteSpan bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CompareCrc(Range& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadMissing(const ReadRangesOptions& options, Missing missing);
  absl::Status CheckDigests(const ReadRangesOptions& options, Missing missing);
  absl::Status CompareDigest(Range& range, uint32_t crc, uint64_t digest);
  absl::Status Damaged(const Range& range, const std::string& what) const;

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  // See MakeOneOfSeveral; by default there is only this check.
  std::optional<std::vector<EntryChunk>> owned_;
  // Sorted by file and offset; fixed after Make.
  std::vector<Range> ranges_;
  // Chunks without CRC, as ranges without a checksum, until AddDigests.
  std::vector<Range> without_crc_;
  mutable absl::Mutex mutex_;  // guards the changing fields in ranges_, and:
  size_t num_stretches_ ABSL_GUARDED_BY(mutex_) = 0;
  SourceCheckReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_SOURCE_CHECK_H_
