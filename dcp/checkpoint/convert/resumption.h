// SPDX-License-Identifier: Apache-2.0
// ResumableRun: the part of a conversion that has a journal: finds what an
// earlier run has done, takes it over, or removes it, and records what this run
// does. Blocking; any thread, one at a time.
#ifndef DCP_CHECKPOINT_CONVERT_RESUMPTION_H_
#define DCP_CHECKPOINT_CONVERT_RESUMPTION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/file_system.h"

namespace dcp {

class ResumableRun {
 public:
  // `options` have a journal and outlive this, as does `fs`.
  ResumableRun(FileSystem& fs, absl::string_view src, absl::string_view dst,
               const ConvertOptions& options);

  // Reads the records. If the run that they describe has made its checkpoint
  // appear, cleans up after it and returns its plan: nothing is left to do.
  absl::StatusOr<std::optional<ConvertPlan>> FinishEarlier();

  // Prepares the conversion, as the continuation of the earlier run if its plan
  // is the same; otherwise removes what that run wrote.
  absl::StatusOr<Conversion> Prepare();

  // Finds the complete files of the earlier run: `steps`, which this must
  // outlive, leaves them out and records those that follow; `digests` gets
  // theirs; the plan counts them. Afterwards the journal describes only these
  // files.
  absl::Status TakeOver(Conversion& conversion, TransferSteps& steps,
                        std::vector<ChunkDigest>& digests);

  // Records what follows, unless that is the rest of an earlier run.
  absl::Status RecordPlan();

  // Records that the commit follows. `mark` is the index of a DCP checkpoint,
  // or the file of digests.
  absl::Status RecordCommit(absl::string_view mark, const ConvertPlan& plan);

  // The conversion has failed with `status`. What it wrote stays for another
  // run if the owner of the journal says so after a stop.
  void End(const absl::Status& status, Conversion& conversion);

 private:
  bool Keeps(const absl::Status& status) const;
  absl::Status TakeBack(const JournaledRun& run);
  absl::Status Discard(const JournaledRun& run);
  absl::Status ReadRecords();
  absl::StatusOr<Conversion> PrepareAndDescribe(const JournaledRun* before);
  absl::Status Describe(const Conversion& conversion);
  absl::Status FindKept(Conversion& conversion, std::vector<bool>& kept,
                        std::vector<ChunkDigest>& digests);

  FileSystem& fs_;
  const std::string src_;
  const std::string dst_;
  const ConvertOptions& options_;
  ConvertJournal& journal_;
  std::optional<JournaledRun> before_;  // the run that is resumed
  bool committed_ = false;              // `before_` made its checkpoint appear
  JournaledRun run_;                    // this one
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_RESUMPTION_H_
