// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/request_messages.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/field_checks.h"
#include "proto/messages/map_messages.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using messages::CheckPattern;
using messages::Index;
using messages::Invalid;

// The longest path that Linux opens.
constexpr size_t kMaxPathBytes = 4096;

// Globs in one list, and casts: each is tried on every name.
constexpr int kMaxGlobs = 1000;
// Renames: each may rewrite every name.
constexpr int kMaxRenames = 100;

absl::StatusOr<std::vector<std::string>> PatternsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, int limit,
    absl::string_view field) {
  if (patterns.size() > limit) {
    return Invalid(field, " has ", patterns.size(), " entries: at most ", limit,
                   " are allowed");
  }
  for (int i = 0; i < patterns.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckPattern(patterns[i], Index(field, i)));
    if (patterns[i].empty()) return Invalid(Index(field, i), " is empty");
  }
  return std::vector<std::string>(patterns.begin(), patterns.end());
}

absl::Status CheckPath(absl::string_view path, absl::string_view field) {
  if (path.size() > kMaxPathBytes) {
    return Invalid(field, " has ", path.size(), " bytes: at most ",
                   kMaxPathBytes, " are allowed");
  }
  if (path.find('\0') != absl::string_view::npos) {
    return Invalid(field, " contains a NUL");
  }
  return absl::OkStatus();
}

absl::StatusOr<DialectOptions> DialectFromProto(
    const v1::DialectOptions& message, absl::string_view field) {
  DialectOptions options;
  if (!message.from().empty()) {
    const absl::StatusOr<Dialect> from = ParseDialect(message.from());
    if (!from.ok()) {
      return Invalid(field, ".from: ", from.status().message());
    }
    options.from = *from;
  }
  DCP_RETURN_IF_ERROR(
      CheckPattern(message.rank_files(), absl::StrCat(field, ".rank_files")));
  DCP_RETURN_IF_ERROR(
      CheckPattern(message.flat_units(), absl::StrCat(field, ".flat_units")));
  DCP_RETURN_IF_ERROR(
      CheckPath(message.layout(), absl::StrCat(field, ".layout")));
  DCP_RETURN_IF_ERROR(CheckPath(message.like(), absl::StrCat(field, ".like")));
  options.rank_files = message.rank_files();
  options.layout = message.layout();
  options.like = message.like();
  options.flat_units = message.flat_units();
  options.low_precision_weights = message.low_precision_weights();
  options.optimizer_in_model_order = message.optimizer_in_model_order();
  options.unstack_layers = message.unstack_layers();
  options.torch_optimizer_names = message.torch_optimizer_names();
  return options;
}

}  // namespace

absl::StatusOr<SourceSpec> SourceFromProto(const v1::Source& source,
                                           absl::string_view field) {
  const std::string path_field = absl::StrCat(field, ".path");
  if (source.path().empty()) return Invalid(path_field, " is empty");
  DCP_RETURN_IF_ERROR(CheckPath(source.path(), path_field));
  SourceSpec spec{
      .path = source.path(), .open = {}, .field = std::string(field)};
  DCP_ASSIGN_OR_RETURN(
      spec.open.dialect,
      DialectFromProto(source.dialect(), absl::StrCat(field, ".dialect")));
  if (source.has_map()) {
    DCP_RETURN_IF_ERROR(CheckMap(source.map(), absl::StrCat(field, ".map")));
    spec.map = std::make_shared<const v1::MapSpec>(source.map());
  }
  if (!source.has_rank()) return spec;
  if (source.rank() < 0 || source.rank() >= kMaxRanks) {
    return Invalid(absl::StrCat(field, ".rank"), " is ", source.rank(),
                   ": 0 to ", kMaxRanks - 1, " are allowed");
  }
  spec.open.rank = source.rank();
  return spec;
}

absl::Status CheckUnmapped(const v1::Source& source, absl::string_view field) {
  if (!source.has_map()) return absl::OkStatus();
  return Invalid(
      absl::StrCat(field, ".map"),
      " is set, but this is about the files of the checkpoint as they "
      "are: leave it out");
}

void SourceToProto(const std::string& path, const OpenOptions& open,
                   v1::Source& proto) {
  proto.set_path(path);
  if (open.rank >= 0) proto.set_rank(open.rank);
  if (open.map != nullptr) MapToProto(*open.map, *proto.mutable_map());
  const DialectOptions& dialect = open.dialect;
  if (dialect == DialectOptions()) return;
  v1::DialectOptions& message = *proto.mutable_dialect();
  if (dialect.from.has_value())
    message.set_from(std::string(DialectName(*dialect.from)));
  message.set_rank_files(dialect.rank_files);
  message.set_layout(dialect.layout);
  message.set_like(dialect.like);
  message.set_flat_units(dialect.flat_units);
  message.set_low_precision_weights(dialect.low_precision_weights);
  message.set_optimizer_in_model_order(dialect.optimizer_in_model_order);
  message.set_unstack_layers(dialect.unstack_layers);
  message.set_torch_optimizer_names(dialect.torch_optimizer_names);
}

std::string StableBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::StatusOr<std::optional<Format>> RequestedFormatFromProto(
    v1::Format format, absl::string_view field) {
  const std::optional<Format> known = FormatFromProto(format);
  if (known.has_value() || format == v1::FORMAT_UNSPECIFIED) return known;
  return Invalid(field, " is ", static_cast<int>(format),
                 ": this server does not know this format");
}

absl::StatusOr<SelectionOptions> SelectionFromProto(
    const v1::Selection& selection, absl::string_view field) {
  SelectionOptions options;
  DCP_ASSIGN_OR_RETURN(options.include,
                       PatternsFromProto(selection.include(), kMaxGlobs,
                                         absl::StrCat(field, ".include")));
  DCP_ASSIGN_OR_RETURN(options.exclude,
                       PatternsFromProto(selection.exclude(), kMaxGlobs,
                                         absl::StrCat(field, ".exclude")));
  DCP_ASSIGN_OR_RETURN(options.renames,
                       PatternsFromProto(selection.renames(), kMaxRenames,
                                         absl::StrCat(field, ".renames")));
  DCP_ASSIGN_OR_RETURN(options.casts,
                       PatternsFromProto(selection.casts(), kMaxGlobs,
                                         absl::StrCat(field, ".casts")));
  constexpr int kMaxParts = 3;
  if (selection.parts().size() > kMaxParts) {
    return Invalid(field, ".parts has ", selection.parts().size(),
                   " entries: at most ", kMaxParts, " are allowed");
  }
  for (const std::string& name : selection.parts()) {
    const absl::StatusOr<StatePart> part = ParseStatePart(name);
    if (!part.ok()) return Invalid(field, ".parts: ", part.status().message());
    options.parts.push_back(*part);
  }
  options.strip_wrappers = selection.strip_wrappers();
  return options;
}

void SelectionToProto(const SelectionOptions& selection, v1::Selection& proto) {
  const auto add = [](const std::vector<std::string>& texts,
                      google::protobuf::RepeatedPtrField<std::string>& list) {
    list.Add(texts.begin(), texts.end());
  };
  add(selection.include, *proto.mutable_include());
  add(selection.exclude, *proto.mutable_exclude());
  add(selection.renames, *proto.mutable_renames());
  add(selection.casts, *proto.mutable_casts());
  for (const StatePart part : selection.parts) {
    proto.add_parts(std::string(StatePartName(part)));
  }
  proto.set_strip_wrappers(selection.strip_wrappers);
}

absl::StatusOr<Tolerance> ToleranceFromProto(
    const v1::DiffRequest::Tolerance& tolerance, absl::string_view field) {
  for (const auto& [name, number] : {std::pair(".atol", tolerance.atol()),
                                     std::pair(".rtol", tolerance.rtol())}) {
    // The condition is false for NaN.
    if (number >= 0 && std::isfinite(number)) continue;
    return Invalid(absl::StrCat(field, name), " is ", number,
                   ": must be a finite number of 0 or more");
  }
  return Tolerance{.atol = tolerance.atol(),
                   .rtol = tolerance.rtol(),
                   .equal_nan = !tolerance.nan_differs()};
}

void ToleranceToProto(const Tolerance& tolerance,
                      v1::DiffRequest::Tolerance& proto) {
  proto.set_atol(tolerance.atol);
  proto.set_rtol(tolerance.rtol);
  proto.set_nan_differs(!tolerance.equal_nan);
}

absl::StatusOr<std::vector<std::string>> GlobsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& globs,
    absl::string_view field) {
  return PatternsFromProto(globs, kMaxGlobs, field);
}

absl::StatusOr<double> SamplePercentFromProto(double percent,
                                              absl::string_view field) {
  if (percent == 0) return 100.0;
  // The condition is false for NaN.
  if (percent > 0 && percent <= 100) return percent;
  return Invalid(field, " is ", percent,
                 ": must be above 0 and at most 100, or 0 for 100");
}

}  // namespace dcp
