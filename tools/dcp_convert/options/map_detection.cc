// SPDX-License-Identifier: Apache-2.0
// Tries every side on the names in the source.
// Tested by tests/tools/dcp_convert/options/map_options_test.cc.
#include "tools/dcp_convert/options/map_detection.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/checkpoint/files/wrapper_names.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/mapping/application/name_spelling.h"

namespace dcp::tools {
namespace {

// The names as `side` would have them, without the prefix that --at gives.
// Optimizer states below --at's prefix for states are left out, because they do
// not tell sides apart.
std::vector<std::string> NamesFor(absl::Span<const MappingTensor> tensors,
                                  const MappingSide& side,
                                  const CommandLine& line) {
  std::string model_prefix;
  std::string states_prefix;
  for (const auto& [place, text] : line.map.prefixes) {
    if (place == side.name) model_prefix = text;
    if (place == absl::StrCat(side.name, ".states")) states_prefix = text;
  }
  std::vector<std::string> names;
  for (const MappingTensor& tensor : tensors) {
    if (!states_prefix.empty() &&
        absl::StartsWith(tensor.name, states_prefix)) {
      continue;
    }
    const bool is_state =
        side.states.has_value() && side.states->Match(tensor.name).has_value();
    names.emplace_back(is_state ? tensor.name
                                : absl::StripPrefix(tensor.name, model_prefix));
  }
  return names;
}

absl::Status Ambiguous(absl::Span<const Spelling> found, bool is_one_family) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the source is spelled as ",
      absl::StrJoin(found, " and as ",
                    [&](std::string* out, const Spelling& spelling) {
                      absl::StrAppend(
                          out, is_one_family ? "" : spelling.mapping.name(),
                          is_one_family ? "" : " ", spelling.side);
                    }),
      is_one_family ? ": say --from-side"
                    : ": give the model's config.json by --config, or name "
                      "the family by --map"));
}

}  // namespace

absl::StatusOr<StoredShapes> ReadShapes(FileSystem& fs, const std::string& path,
                                        const CommandLine& line,
                                        std::stop_token stop) {
  OpenOptions options = SourceOpenOptions(line);
  options.map = nullptr;
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      Checkpoint::Open(fs, path, options, std::move(stop));
  if (!checkpoint.ok()) {
    return WithSide(checkpoint.status(), ErrorSide::kSource);
  }
  StoredShapes shapes{.tensors = {},
                      .warnings = LossTexts((*checkpoint)->losses())};
  for (const CheckpointEntry& entry : (*checkpoint)->entries()) {
    const TensorEntry* const tensor = entry.tensor();
    if (tensor == nullptr) continue;
    shapes.tensors.push_back({.name = WithoutWrappers(entry.fqn),
                              .dtype = tensor->dtype,
                              .shape = tensor->shape});
  }
  return shapes;
}

absl::StatusOr<Spelling> FindSpelling(absl::Span<const Mapping> mappings,
                                      absl::Span<const MappingTensor> tensors,
                                      const std::string& config,
                                      const CommandLine& line) {
  std::vector<Spelling> found;
  std::vector<std::string> lacking;
  for (const Mapping& mapping : mappings) {
    for (const MappingSide& side : mapping.file().sides) {
      if (!line.map.from_side.empty() && line.map.from_side != side.name)
        continue;
      const absl::StatusOr<std::optional<std::string>> unknown =
          FirstUnknownName(mapping.file(), side.name,
                           NamesFor(tensors, side, line), config,
                           line.map.settings);
      // Most families lack the settings that the user gave.
      if (!unknown.ok() && mappings.size() > 1) continue;
      DCP_RETURN_IF_ERROR(unknown.status());
      if (!unknown->has_value()) {
        found.push_back({mapping, side.name});
      } else {
        lacking.push_back(absl::StrCat(side.name, " has no ", **unknown));
      }
    }
  }
  if (found.size() == 1 && !tensors.empty()) return std::move(found[0]);
  if (found.size() > 1 && !tensors.empty()) {
    return Ambiguous(found, mappings.size() == 1);
  }
  return WithSide(
      absl::DataLossError(
          tensors.empty() ? "there are no tensors whose names could tell how "
                            "the model is spelled"
          : mappings.size() == 1
              ? absl::StrCat("no side of the mapping ", mappings[0].name(),
                             " knows all names of the source: ",
                             absl::StrJoin(lacking, "; "))
              : "no family of mappings has a side that knows all names of the "
                "source; see dcp-convert maps list, or write a --map-file"),
      ErrorSide::kSource);
}

}  // namespace dcp::tools
