// SPDX-License-Identifier: Apache-2.0
// Decides by the name which tensors become codes and scales.
// Tested by tests/tools/dcp_convert/encode_options_test.cc.
#include "dcp/checkpoint/mapped/encoded_names.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/tensor/float_codec.h"

namespace dcp {

absl::StatusOr<EncodedNames> EncodedNames::Make(const MapSpec& spec) {
  const MappingSide& side = *spec.mapping.file().FindSide(spec.options.to);
  if (!side.blocks.has_value() ||
      side.blocks->kind != MappingBlocks::Kind::kFloat8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mapping ", spec.mapping.name(), " does not say how ", side.name,
        " names float8 codes and scales, so nothing can be encoded for it; "
        "encode the result in a second run"));
  }
  return EncodedNames(spec, side);
}

EncodedNames::EncodedNames(const MapSpec& spec, const MappingSide& side)
    : side_(side), exclude_(spec.encode_exclude) {}

bool EncodedNames::CanEncode(DType dtype, const Dims& shape) {
  return HasFloatCodec(dtype) && ElementSize(dtype) > 1 && shape.size() >= 2;
}

std::optional<EncodedNames::Names> EncodedNames::Find(
    absl::string_view name) const {
  const auto matches = [&](const NameTemplate& form) {
    return form.Match(name).has_value();
  };
  const MappingBlocks& blocks = *side_.blocks;
  if ((side_.states.has_value() && matches(*side_.states)) ||
      std::any_of(blocks.except.begin(), blocks.except.end(), matches) ||
      exclude_.MatchesAny(name)) {
    return std::nullopt;
  }
  const std::optional<std::vector<NameValue>> values =
      blocks.weight.Match(name);
  if (!values.has_value()) return std::nullopt;
  return Names{.codes = blocks.codes.Format(*values),
               .scales = blocks.scales.Format(*values)};
}

}  // namespace dcp
