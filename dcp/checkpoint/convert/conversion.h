// SPDX-License-Identifier: Apache-2.0
// Conversion: source, destination, output and plan, as known before payload
// moves. Plain data.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERSION_H_
#define DCP_CHECKPOINT_CONVERT_CONVERSION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/convert/convert_target.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/companion_files.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/image_transfer.h"

namespace dcp {

struct Conversion {
  std::unique_ptr<Checkpoint> source;
  std::vector<SelectedEntry> selected;
  CompanionFiles companions;  // of the source, to be copied
  ConvertTarget target;
  std::unique_ptr<Destination> destination;  // null for a stream or a share
  Output output;
  OutputBlocks blocks;                 // used to write it
  std::unique_ptr<SourceCheck> check;  // optional
  // Elements that casts found beyond the range, by payload. Includes those in
  // files that an earlier run wrote.
  std::vector<uint64_t> num_beyond;
  ConvertPlan plan;
  OwnFiles own;  // without a journal only the id counts
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERSION_H_
