// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/source_loss.h"

#include <algorithm>

namespace dcp {

std::vector<SourceLoss> LossesAbout(absl::Span<const SourceLoss> losses,
                                    absl::Span<const StatePart> parts) {
  std::vector<SourceLoss> kept;
  for (const SourceLoss& loss : losses) {
    if (parts.empty() ||
        std::find(parts.begin(), parts.end(), loss.part) != parts.end()) {
      kept.push_back(loss);
    }
  }
  return kept;
}

std::vector<std::string> LossTexts(absl::Span<const SourceLoss> losses) {
  std::vector<std::string> texts;
  for (const SourceLoss& loss : losses) texts.push_back(loss.text);
  return texts;
}

}  // namespace dcp
