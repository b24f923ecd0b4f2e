// SourceCheck: compares what passes through a conversion or a load with the
// checksums that the source has of it, so that damage is found where it is, and
// does not get a fresh checksum elsewhere. It sees each read; nothing is read
// for it but what Finish reads. See "What a conversion checks" in the README.
//
// The lanes of one transfer share it: Saw is thread-safe. Finish and report are
// for one thread, after them.
#ifndef DCP_CHECKPOINT_SOURCE_CHECK_H_
#define DCP_CHECKPOINT_SOURCE_CHECK_H_

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
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/range_reader.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct SourceCheckReport {
  bool checked = false;  // false: nobody asked for it
  uint64_t num_crcs_checked = 0;
  uint64_t num_digests_checked = 0;
  uint64_t bytes_checked = 0;
  // Chunks and objects without CRC and digest, or of which the stretch that
  // has one was read in part only; and the bytes that were read of them.
  uint64_t num_items_unchecked = 0;
  uint64_t bytes_unchecked = 0;
};

class SourceCheck {
 public:
  // What Finish reads of a stretch that was seen in part.
  enum class Missing : uint8_t {
    kNothing,    // the stretch stays unchecked
    kLittle,     // the rest, where that is no more than what was seen
    kWhatMoved,  // the rest, wherever an earlier run has moved it already
  };

  // Of the given entries of `checkpoint`, which are located. Both outlive the
  // check. DataLoss when digests are needed and their file is malformed.
  static absl::StatusOr<std::unique_ptr<SourceCheck>> Make(
      FileSystem& fs, Checkpoint& checkpoint,
      absl::Span<const uint32_t> entries);

  // `bytes` were read from `offset` of a file of the checkpoint. In any order;
  // what comes again is not looked at again. DataLoss names the tensor, as
  // soon as the last byte of a stretch has come and its CRC-32 is another.
  absl::Status Saw(uint32_t file, uint64_t offset, ByteSpan bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the check: reads what is missing, and once more what has no CRC-32 but
  // a digest, which must be what passed through.
  absl::Status Finish(const ReadRangesOptions& options, Missing missing);

  SourceCheckReport report() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For a plan, after which the check is of no more use: notes that bytes would
  // be read, and says how many more Finish would read.
  void WouldSee(uint32_t file, uint64_t offset, uint64_t length)
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t BytesToFinish(Missing missing) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the checkpoint.
  SourceFiles& files() { return checkpoint_.files(); }

 private:
  // A stretch of a file with a checksum. Stretches do not overlap.
  struct Range {
    uint32_t file = 0;
    uint32_t entry = 0;  // that it belongs to, or the first of them
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<uint32_t> crc = std::nullopt;
    std::optional<uint64_t> digest = std::nullopt;  // where there is no CRC
    uint64_t num_items = 0;
    // What was seen: stretches from the key up to the value, in the file.
    absl::btree_map<uint64_t, uint64_t> seen = {};
    uint64_t num_bytes_seen = 0;
    uint64_t num_bytes_added = 0;  // to `sum`
    Crc32Pieces sum = {};
    bool checked = false;

    bool complete() const { return num_bytes_added == length; }
  };
  using Stretch = std::pair<uint64_t, uint64_t>;  // from, up to; in a file

  SourceCheck(FileSystem& fs, Checkpoint& checkpoint)
      : fs_(fs), checkpoint_(checkpoint) {}

  void Collect(absl::Span<const uint32_t> entries);
  void AddTensor(uint32_t entry, const TensorEntry& tensor);
  absl::Status AddDigests();
  void SortByFile();
  void MergeRanges();
  void CountUnchecked(uint64_t num_bytes);
  std::vector<Stretch> Claim(Range& range, uint64_t begin, uint64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Range>::iterator FirstBeyond(uint32_t file, uint64_t offset);
  static bool IsWanted(const Range& range, Missing missing);
  absl::Status SawOf(Range& range, uint64_t offset, ByteSpan bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CompareCrc(Range& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadMissing(const ReadRangesOptions& options, Missing missing);
  absl::Status CheckDigests(const ReadRangesOptions& options);
  absl::Status CompareDigest(Range& range, uint32_t crc, uint64_t digest);
  absl::Status Damaged(const Range& range, const std::string& what) const;

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  // Sorted by file and offset; which there are is settled by Make.
  std::vector<Range> ranges_;
  // Chunks without CRC, as ranges without a checksum, until AddDigests.
  std::vector<Range> without_crc_;
  mutable absl::Mutex mutex_;  // of what changes in ranges_, and of:
  size_t num_stretches_ ABSL_GUARDED_BY(mutex_) = 0;
  SourceCheckReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SOURCE_CHECK_H_
