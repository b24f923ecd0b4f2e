// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/mean_weights.h"

#include <cmath>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// As it is without "./" in front and "/" at the end.
std::string PlainPath(absl::string_view path) {
  while (absl::ConsumePrefix(&path, "./")) {
  }
  while (path.size() > 1 && absl::ConsumeSuffix(&path, "/")) {
  }
  return std::string(path);
}

absl::Status CheckWeight(absl::string_view path, double weight) {
  if (std::isfinite(weight) && weight >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the weight of ", path, " in the mean is ", weight,
                   "; a weight is a finite number from 0"));
}

}  // namespace

std::optional<MeanWindow> ParseMeanWindow(absl::string_view text) {
  if (text == "equal") return MeanWindow::kEqual;
  if (text == "linear") return MeanWindow::kLinear;
  if (text == "minus-sqrt") return MeanWindow::kMinusSqrt;
  return std::nullopt;
}

std::vector<double> WindowWeights(MeanWindow window, size_t num) {
  std::vector<double> weights;
  const auto n = static_cast<double>(num);
  for (size_t i = 0; i < num; ++i) {
    const auto j = static_cast<double>(i);
    switch (window) {
      case MeanWindow::kEqual:
        weights.push_back(1 / n);
        break;
      case MeanWindow::kLinear:
        weights.push_back((j + 1) / (n * (n + 1) / 2));
        break;
      case MeanWindow::kMinusSqrt:
        weights.push_back(std::sqrt((j + 1) / n) - std::sqrt(j / n));
        break;
    }
  }
  return weights;
}

std::vector<MeanTerm> MeanTerms(absl::string_view source, const MapSpec& spec) {
  std::vector<MeanTerm> terms = {
      {.path = std::string(source), .weight = spec.source_weight}};
  terms.insert(terms.end(), spec.average.begin(), spec.average.end());
  return terms;
}

absl::Status CheckMeanWeights(absl::Span<const MeanTerm> terms) {
  double sum = 0;
  for (const MeanTerm& term : terms) {
    DCP_RETURN_IF_ERROR(CheckWeight(term.path, term.weight));
    sum += term.weight;
  }
  if (std::isfinite(sum) && sum > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the sum of the weights in the mean is ", sum,
                   "; it must be finite and above 0"));
}

std::vector<std::string> RepeatedInMean(absl::Span<const MeanTerm> terms) {
  absl::btree_map<std::string, int> counts;
  for (const MeanTerm& term : terms) ++counts[PlainPath(term.path)];
  std::vector<std::string> texts;
  for (const auto& [path, count] : counts) {
    if (count == 1) continue;
    texts.push_back(
        absl::StrCat(path, " is in the mean ", count,
                     " times, and counts each time with its weight"));
  }
  return texts;
}

}  // namespace dcp
