// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/sharding_info.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

constexpr absl::string_view kSavedOffsetsKey = "saved_offsets";

// {"name": {"saved_offsets": [...]}, ...}
class ShardingInfoParser {
 public:
  explicit ShardingInfoParser(SavedOffsets& offsets) : offsets_(offsets) {}

  absl::Status Handle(const JsonEvent& event) {
    if (event.depth == 0) {
      return event.kind == EventKind::kBeginObject ||
                     event.kind == EventKind::kEndObject
                 ? absl::OkStatus()
                 : MisplacedJson(kShardingInfoKey);
    }
    if (event.depth == 1) return HandleEntry(event);
    if (event.depth == 2 && event.kind == EventKind::kKey) {
      field_ = std::string(event.text);
      if (field_ != kSavedOffsetsKey || !saved_.begun()) {
        return absl::OkStatus();
      }
      return absl::DataLossError(
          absl::StrCat(ShortJson(name_), " has its saved_offsets twice"));
    }
    if (field_ != kSavedOffsetsKey) return absl::OkStatus();
    return saved_.Take(event, ShortJson(name_));
  }

 private:
  absl::Status HandleEntry(const JsonEvent& event) {
    switch (event.kind) {
      case EventKind::kKey:
        name_ = std::string(event.text);
        return absl::OkStatus();
      case EventKind::kBeginObject:
        saved_ = {};
        return absl::OkStatus();
      case EventKind::kEndObject:
        if (!saved_.begun()) {
          return absl::DataLossError(
              absl::StrCat(ShortJson(name_), " lacks saved_offsets"));
        }
        if (!offsets_.emplace(name_, saved_.values()).second) {
          return absl::DataLossError(
              absl::StrCat(ShortJson(name_), " occurs twice"));
        }
        return absl::OkStatus();
      default:
        return MisplacedJson(ShortJson(name_));
    }
  }

  SavedOffsets& offsets_;
  std::string name_;
  std::string field_;
  JsonNumbers<Dims, kMaxDims> saved_;
};

}  // namespace

absl::StatusOr<SavedOffsets> ParseShardingInfo(absl::string_view json) {
  SavedOffsets offsets;
  ShardingInfoParser parser(offsets);
  DCP_RETURN_IF_ERROR(Annotate(
      ParseJson(json,
                [&](const JsonEvent& event) { return parser.Handle(event); }),
      kShardingInfoKey));
  return offsets;
}

}  // namespace dcp
