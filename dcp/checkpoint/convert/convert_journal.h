// SPDX-License-Identifier: Apache-2.0
// ConvertJournal: lets a conversion resume where a killed one stopped. The
// conversion writes records of what it is about to do and of what is durable;
// the owner of the journal keeps them in order and gives them to the next run.
// Complete files are neither read nor written again, incomplete ones are
// replaced, and nothing stays that only the earlier run knew of. A run whose
// source or options have changed starts from the beginning. Only this file
// reads the records, which are text. Pure except where noted; one thread at a
// time.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_JOURNAL_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Complete files are synced and recorded each time this many bytes are written.
// Each time the pipeline runs empty for some hundredths of a second; with 4
// GiB, that is about a hundredth of the time that a disk of 1 GB/s needs for
// them.
inline constexpr uint64_t kConvertJournalStepBytes = uint64_t{4} << 30;

struct ConvertJournal {
  // All records of earlier runs, in order; empty for the first run.
  std::vector<std::string> before;
  // Changes whenever the source does: from sizes and times of its files,
  // because the index alone may not tell.
  std::string source_version;
  // Stores a record durably before it returns. Called by the conversion's
  // threads, one at a time; an error ends the conversion.
  absl::AnyInvocable<absl::Status(std::string record)> append;
  // Called when the conversion was stopped: returns whether the files that it
  // has written stay for another run. If absent, they are removed.
  absl::AnyInvocable<bool()> keeps;
  uint64_t step_bytes = kConvertJournalStepBytes;
  // The number of complete files; other threads may read it.
  std::atomic<uint64_t> num_files{0};
};

// What the records say.
struct JournaledRun {
  struct Committed {
    uint64_t digest = 0;  // of the index, or of the file of digests
    // Includes what the run found when checking the source and casting; older
    // records do not have that.
    ConvertPlan plan;
  };
  // "plan":
  uint64_t fingerprint = 0;  // of everything that determines the files
  Destination::Kind kind = Destination::Kind::kFile;
  OwnFiles own;
  std::string index_before;  // IndexDigest of what was at the destination
  // "file": complete and durable files, by their number among own.names.
  std::map<uint32_t, WrittenFile> files;
  // "commit": the run was about to commit, or did.
  std::optional<Committed> commit;
};

std::string PlanRecord(const JournaledRun& run);
std::string FileRecord(uint32_t number, const WrittenFile& file);
std::string CommitRecord(const JournaledRun::Committed& commit);

// The last recorded run, if any. DataLoss for records that the functions above
// do not write.
absl::StatusOr<std::optional<JournaledRun>> ParseConvertRecords(
    absl::Span<const std::string> records);

// Identifies the index at `dst`, so that a replaced one is noticed; "-" if
// there is none. Reads the index.
absl::StatusOr<std::string> IndexDigest(FileSystem& fs, absl::string_view dst);

// Whether the run made its checkpoint appear at `dst` and it is still there.
absl::StatusOr<bool> WasCommitted(FileSystem& fs, absl::string_view dst,
                                  const JournaledRun& run);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_JOURNAL_H_
