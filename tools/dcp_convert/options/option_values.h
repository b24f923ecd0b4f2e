// SPDX-License-Identifier: Apache-2.0
// Setters for option values other than a text, a number or a flag. Each stores
// one value, or returns the problem with it. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_OPTION_VALUES_H_
#define TOOLS_DCP_CONVERT_OPTIONS_OPTION_VALUES_H_

#include <cmath>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/element.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {

absl::Status SetTensors(absl::string_view value, CommandLine& line);
absl::Status SetSample(absl::string_view value, CommandLine& line);
Tolerance& MutableTolerance(CommandLine& line);
absl::Status SetNoEqualNan(absl::string_view, CommandLine& line);
absl::Status SetTo(absl::string_view value, CommandLine& line);
absl::Status AddInclude(absl::string_view value, CommandLine& line);
absl::Status AddExclude(absl::string_view value, CommandLine& line);
absl::Status AddRename(absl::string_view value, CommandLine& line);
absl::Status AddCast(absl::string_view value, CommandLine& line);
absl::Status AddMetadata(absl::string_view value, CommandLine& line);
absl::Status SetMaxMemory(absl::string_view value, CommandLine& line);
absl::Status SetMaxShardSize(absl::string_view value, CommandLine& line);
absl::Status SetDirect(absl::string_view value, CommandLine& line);
absl::Status SetLanes(absl::string_view value, CommandLine& line);
absl::Status SetShare(absl::string_view value, CommandLine& line);
absl::Status SetPieceSize(absl::string_view value, CommandLine& line);
absl::Status SetOlderThan(absl::string_view value, CommandLine& line);
absl::Status SetRank(absl::string_view value, CommandLine& line);
absl::Status SetFrom(absl::string_view value, CommandLine& line);
absl::Status SetWeights(absl::string_view value, CommandLine& line);
absl::Status SetOptimizerNames(absl::string_view value, CommandLine& line);
absl::Status AddPart(absl::string_view value, CommandLine& line);
absl::Status SetProgress(absl::string_view value, CommandLine& line);

template <double Tolerance::*kField>
absl::Status SetTolerance(absl::string_view value, CommandLine& line) {
  double number = 0;
  // This form refuses NaN too.
  if (!absl::SimpleAtod(value, &number) || !(number >= 0) ||
      std::isinf(number)) {
    return IsNot(value, "a number that is not negative");
  }
  MutableTolerance(line).*kField = number;
  return absl::OkStatus();
}

// The line's struct with that type.
template <typename Flags>
Flags& FlagsIn(CommandLine& line) {
  return std::get<Flags&>(
      std::tie(line.inspect, line.verify, line.diff, line.write,
               line.write.spec, line.work, line.workers, line.clean, line.maps,
               line.source.dialect, line.map, line.server, line.selection));
}

// The struct that has the field.
template <typename Flags, typename Value>
Flags FieldOwner(Value Flags::*field);
template <auto kField>
using Owner = decltype(FieldOwner(kField));

// The setters in option_setters.h, for a field in such a struct.
template <auto kField>
absl::Status SetFlagIn(absl::string_view value, CommandLine& line) {
  return SetFlag<kField>(value, FlagsIn<Owner<kField>>(line));
}
template <auto kField>
absl::Status ClearFlagIn(absl::string_view /*value*/, CommandLine& line) {
  FlagsIn<Owner<kField>>(line).*kField = false;
  return absl::OkStatus();
}
template <auto kField>
absl::Status SetTextIn(absl::string_view value, CommandLine& line) {
  return SetText<kField>(value, FlagsIn<Owner<kField>>(line));
}
template <auto kField>
absl::Status SetPositiveIn(absl::string_view value, CommandLine& line) {
  return SetPositive<kField>(value, FlagsIn<Owner<kField>>(line));
}

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_OPTION_VALUES_H_
