// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_hints.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

// Depths in the JSON: the list of units, one unit, "params" in it, one of them.
constexpr uint32_t kUnits = 0;
constexpr uint32_t kUnit = 1;
constexpr uint32_t kParams = 2;
constexpr uint32_t kParam = 3;

class LayoutParser {
 public:
  explicit LayoutParser(FlatHints& hints) : hints_(hints) {}

  absl::Status Handle(const JsonEvent& event) {
    switch (event.depth) {
      case kUnits:
        return Expect(event, EventKind::kBeginArray, EventKind::kEndArray);
      case kUnit:
        if (event.kind == EventKind::kBeginObject) unit_ = {};
        if (event.kind == EventKind::kEndObject) return EndUnit();
        return Expect(event, EventKind::kBeginObject, EventKind::kEndObject);
      case kParams:
        return HandleUnit(event);
      case kParam:
        if (event.kind == EventKind::kBeginObject) param_ = {};
        if (event.kind == EventKind::kEndObject) return EndParameter();
        return Expect(event, EventKind::kBeginObject, EventKind::kEndObject);
      default:
        return HandleParameter(event);
    }
  }

 private:
  struct Unit {
    std::string key;
    std::optional<std::string> name;
    FlatUnit flat;
  };
  struct Param {
    std::string key;
    std::optional<std::string> name;
    std::optional<uint64_t> padding;
    JsonNumbers<Dims, kMaxDims> shape;
  };

  static absl::Status Expect(const JsonEvent& event, EventKind begin,
                             EventKind end) {
    return event.kind == begin || event.kind == end ? absl::OkStatus()
                                                    : MisplacedJson("layout");
  }

  absl::Status HandleUnit(const JsonEvent& event) {
    if (event.kind == EventKind::kKey) {
      unit_.key = std::string(event.text);
      return absl::OkStatus();
    }
    if (unit_.key == "flat" && event.kind == EventKind::kString) {
      unit_.name = std::string(event.text);
      return absl::OkStatus();
    }
    if (unit_.key != "params") return MisplacedJson(ShortJson(unit_.key));
    return Expect(event, EventKind::kBeginArray, EventKind::kEndArray);
  }

  absl::Status HandleParameter(const JsonEvent& event) {
    if (event.kind == EventKind::kKey) {
      param_.key = std::string(event.text);
      return absl::OkStatus();
    }
    if (param_.key == "shape") return param_.shape.Take(event, "shape");
    if (param_.key == "name" && event.kind == EventKind::kString) {
      param_.name = std::string(event.text);
      return absl::OkStatus();
    }
    if (param_.key == "padding" && event.kind == EventKind::kUnsigned &&
        event.number <= kMaxJsonNumber) {
      param_.padding = event.number;
      return absl::OkStatus();
    }
    return MisplacedJson(ShortJson(param_.key));
  }

  absl::Status EndParameter() {
    const bool is_padding = param_.padding.has_value();
    const bool is_parameter = param_.name.has_value() && param_.shape.begun();
    if (is_padding == is_parameter) {
      return absl::DataLossError(
          "expected an object with either name and shape, or padding");
    }
    FlatParameter parameter;
    parameter.begin = unit_.flat.numel;
    if (is_padding) {
      parameter.numel = static_cast<int64_t>(*param_.padding);
    } else {
      parameter.name = *param_.name;
      parameter.shape = param_.shape.values();
      const std::optional<int64_t> numel = CheckedVolume(parameter.shape);
      if (!numel.has_value()) {
        return absl::DataLossError(
            absl::StrCat("the shape ", ShapeToString(parameter.shape), " of ",
                         ShortJson(parameter.name), " is too large"));
      }
      parameter.numel = *numel;
    }
    const std::optional<uint64_t> sum =
        CheckedAdd(static_cast<uint64_t>(unit_.flat.numel),
                   static_cast<uint64_t>(parameter.numel));
    if (!sum.has_value() || *sum > kMaxJsonNumber) {
      return absl::DataLossError("a flat parameter is too large");
    }
    unit_.flat.numel = static_cast<int64_t>(*sum);
    if (is_padding) return absl::OkStatus();
    if (!hints_.shapes.emplace(parameter.name, parameter.shape).second) {
      return absl::DataLossError(
          absl::StrCat(ShortJson(parameter.name), " occurs twice"));
    }
    unit_.flat.parameters.push_back(std::move(parameter));
    return absl::OkStatus();
  }

  absl::Status EndUnit() {
    if (!unit_.name.has_value()) {
      return absl::DataLossError("expected an object with flat and params");
    }
    if (!hints_.units.emplace(*unit_.name, std::move(unit_.flat)).second) {
      return absl::DataLossError(
          absl::StrCat(ShortJson(*unit_.name), " occurs twice"));
    }
    return absl::OkStatus();
  }

  FlatHints& hints_;
  Unit unit_;
  Param param_;
};

// Adds the shapes from the single-file checkpoint at `path`.
absl::Status ReadLike(FileSystem& fs, const std::string& path,
                      const std::stop_token& stop, FlatHints& hints) {
  DCP_ASSIGN_OR_RETURN(const CheckpointParts parts,
                       OpenModel(fs, OneModelFile(path), {}, stop));
  for (const CheckpointEntry& entry : parts.entries) {
    if (entry.tensor() == nullptr) continue;
    hints.shapes.emplace(entry.fqn, entry.tensor()->shape);
    const absl::string_view inner = absl::StripPrefix(entry.fqn, "model.");
    hints.shapes.emplace(inner, entry.tensor()->shape);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const FlatUnit*> FlatHints::Find(absl::string_view flat,
                                                int64_t numel) const {
  const auto found = units.find(flat);
  if (found == units.end()) {
    return OptionError(absl::StatusCode::kInvalidArgument, OptionName{"layout"},
                       " does not say what the flat parameter ", flat,
                       " consists of");
  }
  if (found->second.numel != numel) {
    return OptionError(absl::StatusCode::kInvalidArgument, "according to ",
                       OptionName{"layout"}, ", ", flat, " has ",
                       found->second.numel,
                       " elements, but the checkpoint has ", numel);
  }
  return &found->second;
}

absl::StatusOr<Dims> FlatHints::FindShape(absl::string_view name,
                                          int64_t numel) const {
  const OptionName option = {has_layout ? "layout" : "like"};
  const auto found = shapes.find(name);
  if (found == shapes.end()) {
    return OptionError(absl::StatusCode::kInvalidArgument, option,
                       " does not have ", name);
  }
  const std::optional<int64_t> volume = CheckedVolume(found->second);
  if (volume != numel) {
    return OptionError(absl::StatusCode::kInvalidArgument, "according to ",
                       option, ", ", name, " has shape ",
                       ShapeToString(found->second),
                       ", but the checkpoint has ", numel, " elements of it");
  }
  return found->second;
}

absl::Status ParseFlatLayout(absl::string_view json, FlatHints& hints) {
  hints.has_layout = true;
  LayoutParser parser(hints);
  return ParseJson(
      json, [&](const JsonEvent& event) { return parser.Handle(event); });
}

absl::StatusOr<FlatHints> ReadFlatHints(FileSystem& fs,
                                        const DialectOptions& options,
                                        const std::stop_token& stop) {
  FlatHints hints;
  hints.unit_glob = options.flat_units;
  if (!options.layout.empty()) {
    DCP_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(fs, options.layout, kMaxMetadataBytes,
                                  /*follow_symlinks=*/true, stop));
    DCP_RETURN_IF_ERROR(Annotate(ParseFlatLayout(json, hints), options.layout));
  }
  if (!options.like.empty()) {
    hints.has_like = true;
    DCP_RETURN_IF_ERROR(ReadLike(fs, options.like, stop, hints));
  }
  return hints;
}

}  // namespace dcp
