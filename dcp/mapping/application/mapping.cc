// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/application/mapping.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/model_types.h"
#include "dcp/mapping/application/rule_application.h"
#include "dcp/mapping/equations/mapped_composition.h"
#include "dcp/mapping/language/mapping_reader.h"

namespace dcp {

absl::StatusOr<Mapping> ParseMapping(absl::string_view text,
                                     absl::string_view file_name) {
  DCP_ASSIGN_OR_RETURN(MappingFile file, ReadMappingFile(text, file_name));
  Mapping mapping;
  mapping.file_ = std::make_shared<const MappingFile>(std::move(file));
  mapping.text_ = std::make_shared<const std::string>(text);
  return mapping;
}

std::vector<std::string> Mapping::sides() const {
  std::vector<std::string> names;
  for (const MappingSide& side : file_->sides) names.push_back(side.name);
  return names;
}

absl::StatusOr<MappedTensors> Mapping::Map(
    absl::Span<const MappingTensor> sources, const MapOptions& options) const {
  for (const std::string& side : {options.from, options.to}) {
    if (file_->FindSide(side) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the mapping ", file_->name, " has no side \"", side,
                     "\"; it has ", absl::StrJoin(sides(), ", ")));
  }
  if (options.from == options.to) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mapping ", file_->name, " is asked to turn ", options.from,
        " into itself: leave the mapping out, or choose another of its sides, ",
        absl::StrJoin(sides(), ", ")));
  }
  if (!options.force_family) {
    DCP_RETURN_IF_ERROR(
        CheckModelType(file_->name, file_->model_types, options.config));
  }
  const std::string& pivot = file_->pivot();
  if (options.from == pivot || options.to == pivot) {
    return ApplyRules(*file_, sources, options);
  }
  MapOptions half = options;
  half.to = pivot;
  DCP_ASSIGN_OR_RETURN(MappedTensors first, ApplyRules(*file_, sources, half));
  half.from = pivot;
  half.to = options.to;
  // Tensors that the first could not make are missing again.
  if (!first.missing.empty()) half.allow_missing = {"*"};
  absl::StatusOr<MappedTensors> second =
      ApplyRules(*file_, first.tensors, half);
  if (!second.ok()) {
    return Annotate(second.status(), "from ", options.from, " by way of ",
                    pivot);
  }
  return ComposeMapped(std::move(first), *std::move(second));
}

}  // namespace dcp
