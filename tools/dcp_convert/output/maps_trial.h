// SPDX-License-Identifier: Apache-2.0
// A mapping's conversions, tried there and back, for maps check and maps test.
// Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_MAPS_TRIAL_H_
#define TOOLS_DCP_CONVERT_OUTPUT_MAPS_TRIAL_H_

#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/model_sizes.h"

namespace dcp::tools {

// One conversion, there and back, for one or several models.
struct TriedPair {
  enum class Result : uint8_t {
    kSame,     // everything came back as it was
    kLeftOut,  // one of the two sides cannot spell this model
    kFailed,
  };

  std::string from;
  std::string to;
  size_t num_models = 0;
  size_t num_tensors = 0;  // in all models
  size_t num_made = 0;     // on the other side
  Result result = Result::kSame;
  std::string why = {};  // unless it is kSame
};

struct TrialRequest {
  // Compares the bits of random tensors; otherwise only shapes and pieces.
  bool with_bits = false;
  // Only conversions between these; empty: all sides.
  std::string from = {};
  std::string to = {};
  std::string config = {};
  MappingSettings settings = {};
};

// Tries invented models between the pivot and every other side, in both
// directions. Cancelled after a stop; other errors are in the result.
absl::StatusOr<std::vector<TriedPair>> TryInvented(const Mapping& mapping,
                                                   const TrialRequest& request,
                                                   const std::stop_token& stop);

// Tries a model with tensors that are spelled as `side`, on every side that can
// spell it. The errors are those that Mapping::Map to the pivot returns.
absl::StatusOr<std::vector<TriedPair>> TryModel(
    const Mapping& mapping, const std::string& side,
    absl::Span<const MappingTensor> tensors, const TrialRequest& request,
    const std::stop_token& stop);

// Whether nothing failed and something was tried.
bool IsProven(absl::Span<const TriedPair> pairs);

std::string RenderTrial(const std::string& name, bool with_bits,
                        absl::Span<const TriedPair> pairs);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_MAPS_TRIAL_H_
