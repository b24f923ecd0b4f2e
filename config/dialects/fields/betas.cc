// SPDX-License-Identifier: Apache-2.0
// Reads the list as two numbers with bounds.
//
// Tested by tests/config/dialects/composer/trainer_test.cc.
#include "config/dialects/fields/betas.h"

#include <optional>

#include "config/document/scalar.h"

namespace fsdp::config {

void ReadBetas(Section& section, LoopConfig& loop) {
  const Node* betas = section.Find("betas");
  if (betas == nullptr) return;
  std::optional<double> first;
  std::optional<double> second;
  if (betas->items.size() == 2) {
    first = AsReal(betas->items[0]);
    second = AsReal(betas->items[1]);
  }
  const auto is_beta = [](const std::optional<double>& beta) {
    return beta.has_value() && *beta >= 0 && *beta <= 1;
  };
  if (!is_beta(first) || !is_beta(second)) {
    section.findings().Problem(betas->place,
                               "is not a list of two numbers from 0 to 1");
    return;
  }
  loop.beta1 = Some(*first, betas->items[0].place);
  loop.beta2 = Some(*second, betas->items[1].place);
}

}  // namespace fsdp::config
