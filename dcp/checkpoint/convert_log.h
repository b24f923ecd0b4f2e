// ConvertLog: lets a conversion go on where a killed one stopped. The
// conversion writes records of what it is about to do and of what is durable;
// their keeper (a journal) keeps them in order and gives them to the next run.
// Files that were complete are neither read nor written again, half-written
// ones are replaced, and nothing that only the run before knew of stays. A run
// whose source or options have changed begins anew. The records are text for
// this file alone. Pure but for what says otherwise; one thread at a time.
#ifndef DCP_CHECKPOINT_CONVERT_LOG_H_
#define DCP_CHECKPOINT_CONVERT_LOG_H_

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
#include "dcp/checkpoint/commit.h"
#include "dcp/checkpoint/convert.h"
#include "dcp/checkpoint/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Complete files are synced and recorded when so much is written. Each time
// the pipeline runs empty, for some hundredths of a second: with 4 GiB that is
// about a hundredth of the time that a disk of 1 GB/s takes for them.
inline constexpr uint64_t kConvertLogStepBytes = uint64_t{4} << 30;

struct ConvertLog {
  // All that earlier runs appended, in order; empty for the first.
  std::vector<std::string> before;
  // Changes whenever the source does, of which the index alone may not tell:
  // sizes and times of its files.
  std::string source_version;
  // Keeps a record durably before it returns. Called by the conversion's
  // threads, one at a time; an error ends the conversion.
  absl::AnyInvocable<absl::Status(std::string record)> append;
  // Asked when the conversion was stopped: whether what it has written stays
  // for another run. Absent: it is removed.
  absl::AnyInvocable<bool()> keeps;
  uint64_t step_bytes = kConvertLogStepBytes;
  // Files that are complete; other threads may watch it.
  std::atomic<uint64_t> num_files{0};
};

// How many elements of one payload a cast found beyond the range of the new
// type.
struct NumBeyond {
  uint32_t payload = 0;  // its number in the output
  uint64_t count = 0;

  friend bool operator==(const NumBeyond&, const NumBeyond&) = default;
};

// What the records say.
struct LoggedRun {
  struct Committed {
    uint64_t digest = 0;  // of the index, or of the file of digests
    // With what the run found out of the source and by casting; records from
    // before those were kept say nothing of them.
    ConvertPlan plan;
  };
  struct File {
    std::vector<ChunkDigest> digests;
    std::vector<NumBeyond> num_beyond;  // of its payloads
  };
  // "plan":
  uint64_t fingerprint = 0;  // of everything that the files follow from
  Destination::Kind kind = Destination::Kind::kFile;
  OwnFiles own;
  std::string index_before;  // IndexDigest of what was at the destination
  // "file": complete and durable, by its number among own.names.
  std::map<uint32_t, File> files;
  // "commit": was about to, or did.
  std::optional<Committed> commit;
};

std::string PlanRecord(const LoggedRun& run);
std::string FileRecord(uint32_t number, const LoggedRun::File& file);
std::string CommitRecord(const LoggedRun::Committed& commit);

// The last run of those recorded, if any. DataLoss for what the functions
// above do not write.
absl::StatusOr<std::optional<LoggedRun>> ParseConvertRecords(
    absl::Span<const std::string> records);

// Tells an index from the one that replaced it; "-" for none. Reads it.
absl::StatusOr<std::string> IndexDigest(FileSystem& fs, absl::string_view dst);

// Whether the run made its checkpoint appear at `dst`, where it still is.
absl::StatusOr<bool> WasCommitted(FileSystem& fs, absl::string_view dst,
                                  const LoggedRun& run);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_LOG_H_
