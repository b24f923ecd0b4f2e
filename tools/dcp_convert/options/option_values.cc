// SPDX-License-Identifier: Apache-2.0
// Parses one value in each function.
// Tested by tests/tools/dcp_convert/options/command_line_test.cc.
#include "tools/dcp_convert/options/option_values.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// The most that a user may request; the machine decides whether it helps.
constexpr uint32_t kMaxLanes = 256;

absl::Status AddTo(absl::string_view value, absl::string_view expected,
                   std::vector<std::string>& list) {
  if (value.empty()) return IsNot(value, expected);
  list.emplace_back(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetTensors(absl::string_view value, CommandLine& line) {
  if (value.empty()) return IsNot(value, "a pattern of names");
  line.inspect.tensors_glob = std::string(value);
  return absl::OkStatus();
}

absl::Status SetSample(absl::string_view value, CommandLine& line) {
  double percent = 0;
  absl::string_view number = value;
  if (!number.empty() && number.back() == '%') number.remove_suffix(1);
  // This form refuses NaN too.
  if (!absl::SimpleAtod(number, &percent) || !(percent > 0) ||
      !(percent <= 100)) {
    return IsNot(value, "a percentage above 0 and up to 100");
  }
  line.verify.sample_percent = percent;
  return absl::OkStatus();
}

Tolerance& MutableTolerance(CommandLine& line) {
  if (!line.diff.tolerance.has_value()) line.diff.tolerance.emplace();
  return *line.diff.tolerance;
}

absl::Status SetNoEqualNan(absl::string_view, CommandLine& line) {
  MutableTolerance(line).equal_nan = false;
  return absl::OkStatus();
}

absl::Status SetTo(absl::string_view value, CommandLine& line) {
  line.write.spec.to_dialect = std::nullopt;
  if (value == DialectName(Dialect::kAccelerate)) {
    line.write.spec.to = Format::kDcp;
    line.write.spec.to_dialect = Dialect::kAccelerate;
    return absl::OkStatus();
  }
  const absl::StatusOr<Format> format = ParseFormat(value);
  if (!format.ok()) {
    return IsNot(value, "dcp, safetensors, pt or accelerate");
  }
  line.write.spec.to = *format;
  return absl::OkStatus();
}

absl::Status AddInclude(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a pattern of names", line.selection.include);
}

absl::Status AddExclude(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a pattern of names", line.selection.exclude);
}

absl::Status AddRename(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a rule such as 's/^model\\.//'", line.selection.renames);
}

absl::Status AddCast(absl::string_view value, CommandLine& line) {
  const size_t equals = value.rfind('=');
  const absl::string_view name =
      equals == absl::string_view::npos ? value : value.substr(equals + 1);
  DCP_RETURN_IF_ERROR(ParseDType(name).status());
  return AddTo(value, "a dtype, or GLOB=dtype", line.selection.casts);
}

absl::Status AddMetadata(absl::string_view value, CommandLine& line) {
  const size_t equals = value.find('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return IsNot(value, "KEY=VALUE");
  }
  line.write.spec.metadata.emplace_back(value.substr(0, equals),
                                        value.substr(equals + 1));
  return absl::OkStatus();
}

absl::Status SetMaxMemory(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.memory_bytes, ParseSize(value));
  if (line.memory_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is less than the minimum, ",
                     FormatMemory(kMinMemoryBytes)));
  }
  return absl::OkStatus();
}

absl::Status SetMaxShardSize(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.write.spec.max_shard_bytes, ParseSize(value));
  if (line.write.spec.max_shard_bytes == 0)
    return IsNot(value, "1 byte or more");
  return absl::OkStatus();
}

absl::Status SetDirect(absl::string_view value, CommandLine& line) {
  if (value == "auto") {
    line.source.direct = DirectMode::kAuto;
  } else if (value == "on") {
    line.source.direct = DirectMode::kOn;
  } else if (value == "off") {
    line.source.direct = DirectMode::kOff;
  } else {
    return IsNot(value, "auto, on or off");
  }
  return absl::OkStatus();
}

absl::Status SetLanes(absl::string_view value, CommandLine& line) {
  uint32_t lanes = 0;
  if (!absl::SimpleAtoi(value, &lanes) || lanes < 1 || lanes > kMaxLanes) {
    return IsNot(value, absl::StrCat("a number from 1 to ", kMaxLanes));
  }
  line.write.num_lanes = lanes;
  return absl::OkStatus();
}

absl::Status SetShare(absl::string_view value, CommandLine& line) {
  const std::pair<absl::string_view, absl::string_view> split =
      absl::StrSplit(value, absl::MaxSplits('/', 1));
  Share share;
  if (!absl::SimpleAtoi(split.first, &share.index) ||
      !absl::SimpleAtoi(split.second, &share.count) ||
      share.index >= share.count) {
    return IsNot(value, "K/N with K from 0 to N - 1");
  }
  line.work.share = share;
  return absl::OkStatus();
}

absl::Status SetPieceSize(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.work.piece_bytes, ParseSize(value));
  if (line.work.piece_bytes == 0) return IsNot(value, "1 byte or more");
  return absl::OkStatus();
}

// A number, which is in hours, or one with a unit.
absl::Status SetOlderThan(absl::string_view value, CommandLine& line) {
  constexpr std::pair<absl::string_view, absl::Duration> kUnits[] = {
      {"m", absl::Minutes(1)}, {"h", absl::Hours(1)}, {"d", absl::Hours(24)}};
  absl::string_view number = value;
  absl::Duration unit = absl::Hours(1);
  for (const auto& [name, length] : kUnits) {
    if (absl::ConsumeSuffix(&number, name)) unit = length;
  }
  uint32_t count = 0;
  if (!absl::SimpleAtoi(number, &count)) {
    return IsNot(value, "a time, such as 30m, 12h or 7d");
  }
  line.clean.older_than = count * unit;
  return absl::OkStatus();
}

absl::Status SetRank(absl::string_view value, CommandLine& line) {
  int64_t rank = 0;
  if (!absl::SimpleAtoi(value, &rank) || rank < 0) {
    return IsNot(value, "a rank: 0 or more");
  }
  line.source.rank = rank;
  return absl::OkStatus();
}

absl::Status SetFrom(absl::string_view value, CommandLine& line) {
  const absl::StatusOr<Dialect> from = ParseDialect(value);
  if (!from.ok()) return IsNot(value, DialectNames());
  line.source.dialect.from = *from;
  return absl::OkStatus();
}

absl::Status SetWeights(absl::string_view value, CommandLine& line) {
  if (value != "master" && value != "low") {
    return IsNot(value, "master or low");
  }
  line.source.dialect.low_precision_weights = value == "low";
  return absl::OkStatus();
}

absl::Status SetOptimizerNames(absl::string_view value, CommandLine& line) {
  if (value != "stored" && value != "torch" && value != "order") {
    return IsNot(value, "stored, torch or order");
  }
  line.source.dialect.torch_optimizer_names = value == "torch";
  line.source.dialect.optimizer_in_model_order = value == "order";
  return absl::OkStatus();
}

absl::Status AddPart(absl::string_view value, CommandLine& line) {
  const absl::StatusOr<StatePart> part = ParseStatePart(value);
  if (!part.ok()) return IsNot(value, "model, optimizer or extra");
  line.selection.parts.push_back(*part);
  return absl::OkStatus();
}

absl::Status SetProgress(absl::string_view value, CommandLine& line) {
  if (value == "auto") {
    line.progress = ProgressMode::kAuto;
  } else if (value == "plain") {
    line.progress = ProgressMode::kPlain;
  } else if (value == "json") {
    line.progress = ProgressMode::kJson;
  } else if (value == "none") {
    line.progress = ProgressMode::kNone;
  } else {
    return IsNot(value, "auto, plain, json or none");
  }
  return absl::OkStatus();
}

}  // namespace dcp::tools
