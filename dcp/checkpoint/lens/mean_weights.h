// SPDX-License-Identifier: Apache-2.0
// The weights of checkpoints in a mean: windows that give each checkpoint its
// weight, and checks. Pure; any thread.
#ifndef DCP_CHECKPOINT_LENS_MEAN_WEIGHTS_H_
#define DCP_CHECKPOINT_LENS_MEAN_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/map_spec.h"

namespace dcp {

// The weights of n checkpoints in a row, from the oldest, c_0, to c_(n-1).
enum class MeanWindow : uint8_t {
  kEqual,   // each 1 / n
  kLinear,  // c_j in proportion to j + 1
  // WSM (arXiv 2507.17634): the mean of checkpoints from a constant learning
  // rate stands for a decay, in which the updates before checkpoint j have the
  // weight w_j, and c_j = w_j - w_(j+1). Here w_j = 1 - sqrt(j / n), so that
  // c_j = sqrt((j + 1) / n) - sqrt(j / n). A linear decay gives equal weights.
  kMinusSqrt,
};

// "equal", "linear" or "minus-sqrt"; nullopt for any other text.
std::optional<MeanWindow> ParseMeanWindow(absl::string_view text);

// The sum is 1. `num` is at least 1.
std::vector<double> WindowWeights(MeanWindow window, size_t num);

// All checkpoints of the mean: `source`, and then spec.average.
std::vector<MeanTerm> MeanTerms(absl::string_view source, const MapSpec& spec);

// InvalidArgument, which names the checkpoint and its weight, unless all
// weights are finite and at least 0, and their sum is finite and above 0.
absl::Status CheckMeanWeights(absl::Span<const MeanTerm> terms);

// A sentence for each checkpoint that is there several times.
std::vector<std::string> RepeatedInMean(absl::Span<const MeanTerm> terms);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_MEAN_WEIGHTS_H_
