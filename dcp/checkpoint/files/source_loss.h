// SPDX-License-Identifier: Apache-2.0
// SourceLoss: a piece of a training state that a checkpoint lacks, or that
// opening cannot restore. Callers that open a checkpoint report all losses to
// the user. Plain data; the function is for any thread.
#ifndef DCP_CHECKPOINT_FILES_SOURCE_LOSS_H_
#define DCP_CHECKPOINT_FILES_SOURCE_LOSS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/state_part.h"

namespace dcp {

struct SourceLoss {
  // The part of the state that lacks something.
  StatePart part = StatePart::kModel;
  // Whether the files have something that the opened checkpoint does not: the
  // optimizer, or weights' shapes. A conversion would write less than was
  // saved, and is refused unless ConvertOptions::allow_losses is on.
  bool needs_consent = false;
  // The loss, and the option that helps, if there is one.
  std::string text;
};

// The losses about one of `parts`; empty stands for all.
std::vector<SourceLoss> LossesAbout(absl::Span<const SourceLoss> losses,
                                    absl::Span<const StatePart> parts);

// The losses' texts, in the same order.
std::vector<std::string> LossTexts(absl::Span<const SourceLoss> losses);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_SOURCE_LOSS_H_
