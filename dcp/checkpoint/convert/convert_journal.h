// SPDX-License-Identifier: Apache-2.0
// ConvertJournal: lets a conversion resume where a killed one stopped. The
// conversion writes records of the plan, of each durable file, and of the
// commit. The journal's owner keeps them in order and gives them to the next
// run. That run neither reads nor writes complete files again, replaces
// incomplete ones, and removes the rest. After a change of the source or the
// options, it starts from the beginning. The owner does not read the records,
// which have the form of records/record_text.h. Pure except where noted; one
// thread at a time.
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
#include "dcp/checkpoint/records/work_record.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Complete files are synced and recorded each time this many bytes are written.
// Each time the pipeline runs empty for some hundredths of a second. For 4 GiB,
// that is about 1 % of the time that a disk with 1 GB/s needs.
inline constexpr uint64_t kConvertJournalStepBytes = uint64_t{4} << 30;

struct ConvertJournal {
  // All records from earlier runs, in order; empty for the first run.
  std::vector<std::string> before;
  // Stores a record durably before it returns. Called by the conversion's
  // threads, one at a time; an error ends the conversion.
  absl::AnyInvocable<absl::Status(std::string record)> append;
  // Called when the conversion was stopped: returns whether the written files
  // stay for another run. If absent, they are removed.
  absl::AnyInvocable<bool()> keeps;
  uint64_t step_bytes = kConvertJournalStepBytes;
  // Complete files; other threads may read it.
  std::atomic<uint64_t> num_files{0};
};

// The run that the records describe.
struct JournaledRun {
  struct Committed {
    uint64_t digest = 0;  // of the index, or of the file of digests
    // Includes the results of checks and casts.
    ConvertPlan plan;
  };
  WorkPlan plan;  // has `journaled`
  // Complete and durable files, by their number in plan.files.
  std::map<uint32_t, PieceRecord> files;
  std::optional<Committed> commit;  // the run was about to commit, or did

  // For Destination.
  OwnFiles own() const;
};

std::string WriteCommitRecord(const JournaledRun::Committed& commit);

// The last recorded run, if any: a plan revokes all records before it. DataLoss
// for records that do not belong together, or that nobody writes.
absl::StatusOr<std::optional<JournaledRun>> ParseConvertRecords(
    absl::Span<const std::string> records);

// Identifies the index at `dst`, so that a replaced one is noticed; "-" if
// there is none. Reads the index.
absl::StatusOr<std::string> IndexDigest(FileSystem& fs, absl::string_view dst);

// Whether the run's checkpoint has appeared at `dst` and is still there.
absl::StatusOr<bool> WasCommitted(FileSystem& fs, absl::string_view dst,
                                  const JournaledRun& run);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_JOURNAL_H_
