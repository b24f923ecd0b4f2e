// SPDX-License-Identifier: Apache-2.0
// ResumableRun: a conversion with a journal. Finds the work of an earlier run,
// takes it over or removes it, and records the work of this run. Blocking; any
// thread, one at a time.
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
#include "dcp/checkpoint/records/work_record.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/file_system.h"

namespace dcp {

class ResumableRun {
 public:
  // `options` have a journal and outlive this, as does `fs`.
  ResumableRun(FileSystem& fs, absl::string_view src, absl::string_view dst,
               const ConvertOptions& options);

  // Reads the records. If the checkpoint of the recorded run has appeared,
  // cleans up after that run and returns the plan: nothing is left to do.
  absl::StatusOr<std::optional<ConvertPlan>> FinishEarlier();

  // Prepares the conversion. Continues the earlier run if the plan is the same;
  // otherwise removes that run's files.
  absl::StatusOr<Conversion> Prepare();

  // Finds the complete files of the earlier run, leaves them out of `steps`,
  // which this must outlive, and records those that follow. Adds their digests
  // to `digests` and counts them in the plan. Afterwards the journal describes
  // only these files.
  absl::Status TakeOver(Conversion& conversion, TransferSteps& steps,
                        std::vector<ChunkDigest>& digests);

  // Records the plan, unless this run continues an earlier one.
  absl::Status RecordPlan();

  // Records that the commit follows. `mark` is the index of a DCP checkpoint,
  // or the file of digests.
  absl::Status RecordCommit(absl::string_view mark, const ConvertPlan& plan);

  // The conversion has failed with `status`. After a stop, the journal's owner
  // decides whether the files stay for another run.
  void End(const absl::Status& status, Conversion& conversion);

 private:
  bool Keeps(const absl::Status& status) const;
  absl::Status TakeBack(const WorkPlan& plan);
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
  WorkPlan plan_;                       // of this run
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_RESUMPTION_H_
