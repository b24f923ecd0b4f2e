// SPDX-License-Identifier: Apache-2.0
// Converts each model to a side and back.
// Tested by tests/tools/dcp_convert/commands/maps_command_test.cc.
#include "tools/dcp_convert/output/maps_trial.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/trial/invented_model.h"
#include "dcp/mapping/trial/mapping_trial.h"
#include "dcp/mapping/trial/round_trip.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// Numbers that are made up are tied or not, padded or not.
constexpr uint32_t kNumModels = 4;

class Trier {
 public:
  Trier(const Mapping& mapping, const TrialRequest& request)
      : mapping_(mapping), request_(request) {}

  // Tries `sources` and adds to `pair`. Returns whether they came back the
  // same.
  bool Try(absl::Span<const MappingTensor> sources, const MapOptions& options,
           uint32_t seed, TriedPair& pair) const {
    absl::Status status;
    size_t num_made = 0;
    if (request_.with_bits) {
      const absl::StatusOr<MappingTrial> trial =
          TryMapping(mapping_, sources, options, seed);
      status = trial.status();
      if (trial.ok()) num_made = trial->num_made;
    } else {
      const absl::StatusOr<RoundTrip> trip =
          CheckRoundTrip(mapping_, sources, options);
      status = trip.status();
      if (trip.ok()) num_made = trip->num_made;
    }
    ++pair.num_models;
    pair.num_tensors += sources.size();
    pair.num_made += num_made;
    if (status.ok()) return true;
    pair.result = TriedPair::Result::kFailed;
    pair.why = std::string(status.message());
    return false;
  }

  bool IsAsked(const std::string& from, const std::string& to) const {
    return (request_.from.empty() || request_.from == from) &&
           (request_.to.empty() || request_.to == to);
  }

  const std::string& pivot() const { return mapping_.file().pivot(); }

 private:
  const Mapping& mapping_;
  const TrialRequest& request_;
};

// "--set heads=4 --set groups=2", so that users can repeat a failure.
std::string SettingsText(const MappingSettings& settings) {
  return absl::StrJoin(settings, " ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, "--set ", entry.first, "=", entry.second);
  });
}

// Tries one model that is made up between the pivot and `side`.
absl::Status TryOne(const Mapping& mapping, const TrialRequest& request,
                    const Invention& invention, TriedPair& there,
                    TriedPair& back) {
  const Trier trier(mapping, request);
  DCP_ASSIGN_OR_RETURN(const InventedModel model,
                       InventModel(mapping, invention));
  if (model.tensors.empty()) return absl::OkStatus();
  MapOptions options = {.from = trier.pivot(),
                        .to = invention.side,
                        .config = invention.config,
                        .settings = model.settings};
  options.parts =
      invention.states ? MapOptions::Parts::kStates : MapOptions::Parts::kModel;
  const std::string with =
      absl::StrCat("; with ", SettingsText(model.settings));
  if (trier.IsAsked(there.from, there.to) &&
      !trier.Try(model.tensors, options, invention.seed, there)) {
    absl::StrAppend(&there.why, model.settings.empty() ? "" : with);
    return absl::OkStatus();
  }
  if (!trier.IsAsked(back.from, back.to)) return absl::OkStatus();
  const absl::StatusOr<MappedTensors> made =
      mapping.Map(model.tensors, options);
  if (!made.ok()) return made.status();
  std::swap(options.from, options.to);
  if (!trier.Try(made->tensors, options, invention.seed, back)) {
    absl::StrAppend(&back.why, model.settings.empty() ? "" : with);
  }
  return absl::OkStatus();
}

// Whether a side has no names for some tensors, or needs others, because it
// spells other models than this one.
bool IsOfAnotherModel(const absl::Status& status) {
  return absl::StrContains(status.message(), "has no rule for ") ||
         absl::StrContains(status.message(), "nothing is found for ");
}

absl::Status Stopped() {
  return absl::CancelledError("stopped before everything was tried");
}

}  // namespace

absl::StatusOr<std::vector<TriedPair>> TryInvented(
    const Mapping& mapping, const TrialRequest& request,
    const std::stop_token& stop) {
  const std::string& pivot = mapping.file().pivot();
  std::vector<TriedPair> pairs;
  for (const std::string& side : mapping.sides()) {
    if (side == pivot) continue;
    TriedPair there{.from = pivot, .to = side};
    TriedPair back{.from = side, .to = pivot};
    for (uint32_t n = 0; n < 2 * kNumModels; ++n) {
      if (stop.stop_requested()) return Stopped();
      if (there.result != TriedPair::Result::kSame ||
          back.result != TriedPair::Result::kSame) {
        break;
      }
      const absl::Status tried = TryOne(mapping, request,
                                        {.side = side,
                                         .config = request.config,
                                         .settings = request.settings,
                                         .states = n % 2 == 1,
                                         .seed = n / 2},
                                        there, back);
      if (tried.ok()) continue;
      there.result = TriedPair::Result::kFailed;
      there.why = std::string(tried.message());
    }
    for (TriedPair* pair : {&there, &back}) {
      if (pair->num_models > 0 || pair->result != TriedPair::Result::kSame) {
        pairs.push_back(std::move(*pair));
      }
    }
  }
  return pairs;
}

absl::StatusOr<std::vector<TriedPair>> TryModel(
    const Mapping& mapping, const std::string& side,
    absl::Span<const MappingTensor> tensors, const TrialRequest& request,
    const std::stop_token& stop) {
  const Trier trier(mapping, request);
  MapOptions options = {.from = side,
                        .to = trier.pivot(),
                        .config = request.config,
                        .settings = request.settings};
  std::map<std::string, std::vector<MappingTensor>> spelled;
  if (side == trier.pivot()) {
    spelled[side].assign(tensors.begin(), tensors.end());
  } else {
    DCP_ASSIGN_OR_RETURN(MappedTensors made, mapping.Map(tensors, options));
    spelled[trier.pivot()] = std::move(made.tensors);
  }
  std::vector<TriedPair> pairs;
  options.from = trier.pivot();
  for (const std::string& other : mapping.sides()) {
    if (other == trier.pivot()) continue;
    options.to = other;
    absl::StatusOr<MappedTensors> made =
        mapping.Map(spelled[trier.pivot()], options);
    if (made.ok()) {
      spelled[other] = std::move(made->tensors);
      continue;
    }
    if (!trier.IsAsked(trier.pivot(), other)) continue;
    pairs.push_back({.from = trier.pivot(),
                     .to = other,
                     .result = IsOfAnotherModel(made.status())
                                   ? TriedPair::Result::kLeftOut
                                   : TriedPair::Result::kFailed,
                     .why = std::string(made.status().message())});
  }
  for (const auto& [from, sources] : spelled) {
    for (const auto& [to, made] : spelled) {
      // If both halves hold for pieces, the whole does.
      const bool is_half = from == trier.pivot() || to == trier.pivot();
      if (from == to || !trier.IsAsked(from, to) ||
          (!is_half && !request.with_bits)) {
        continue;
      }
      if (stop.stop_requested()) return Stopped();
      options.from = from;
      options.to = to;
      TriedPair& pair = pairs.emplace_back();
      pair.from = from;
      pair.to = to;
      trier.Try(sources, options, 0, pair);
    }
  }
  return pairs;
}

bool IsProven(absl::Span<const TriedPair> pairs) {
  return std::none_of(pairs.begin(), pairs.end(),
                      [](const TriedPair& pair) {
                        return pair.result == TriedPair::Result::kFailed;
                      }) &&
         std::any_of(pairs.begin(), pairs.end(), [](const TriedPair& pair) {
           return pair.result == TriedPair::Result::kSame;
         });
}

std::string RenderTrial(const std::string& name, bool with_bits,
                        absl::Span<const TriedPair> pairs) {
  Table table({{"FROM"},
               {"TO"},
               {"MODELS", Align::kRight},
               {"TENSORS", Align::kRight},
               {"MADE", Align::kRight},
               {"THERE AND BACK"}});
  size_t num_same = 0;
  size_t num_failed = 0;
  std::string problems;
  for (const TriedPair& pair : pairs) {
    const bool is_same = pair.result == TriedPair::Result::kSame;
    const bool is_failed = pair.result == TriedPair::Result::kFailed;
    table.AddRow({pair.from, pair.to, absl::StrCat(pair.num_models),
                  FormatCount(pair.num_tensors), FormatCount(pair.num_made),
                  is_same     ? "the same"
                  : is_failed ? "FAILED"
                              : "left out"});
    num_same += is_same ? 1 : 0;
    num_failed += is_failed ? 1 : 0;
    if (is_same) continue;
    absl::StrAppend(&problems, pair.from, " to ", pair.to,
                    is_failed ? ": " : " is left out: ", Printable(pair.why),
                    "\n");
  }
  return absl::StrCat(
      table.Render(), problems.empty() ? "" : "\n", problems, "\n",
      Printable(name), ": ", FormatPlural(num_same, "conversion"),
      with_bits ? " of random tensors" : " by shapes and pieces",
      num_same == 1 ? " comes" : " come", " back as ",
      num_same == 1 ? "it was" : "they were",
      num_failed == 0 ? "" : absl::StrCat(", ", num_failed, " failed"), "\n");
}

}  // namespace dcp::tools
