// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/safetensors_index.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/file/relative_path.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

// {"metadata": {...}, "weight_map": {"name": "file", ...}}
class IndexParser {
 public:
  explicit IndexParser(absl::flat_hash_map<std::string, std::string>& files)
      : files_(files) {}

  bool has_weight_map() const { return has_weight_map_; }

  absl::Status Handle(const JsonEvent& event) {
    if (event.depth == 0) {
      return event.kind == EventKind::kBeginObject ||
                     event.kind == EventKind::kEndObject
                 ? absl::OkStatus()
                 : MisplacedJson("index");
    }
    if (event.depth == 1 && event.kind == EventKind::kKey) {
      in_weight_map_ = event.text == "weight_map";
      if (in_weight_map_ && has_weight_map_) {
        return absl::DataLossError("weight_map occurs twice");
      }
      has_weight_map_ = has_weight_map_ || in_weight_map_;
      in_metadata_ = event.text == "metadata";
      return absl::OkStatus();
    }
    if (in_metadata_) return HandleMetadata(event);
    if (!in_weight_map_) return absl::OkStatus();
    if (event.depth == 1) {
      return event.kind == EventKind::kBeginObject ||
                     event.kind == EventKind::kEndObject
                 ? absl::OkStatus()
                 : MisplacedJson("weight_map");
    }
    if (event.kind == EventKind::kKey) {
      name_ = std::string(event.text);
      return absl::OkStatus();
    }
    return event.kind == EventKind::kString ? AddFile(event.text)
                                            : MisplacedJson(ShortJson(name_));
  }

 private:
  // Inference engines pull such folders and apply them to the weights that they
  // have.
  static absl::Status HandleMetadata(const JsonEvent& event) {
    if (event.depth != 2 || event.kind != EventKind::kKey ||
        event.text != "delta_encoding") {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(
        "the index has delta_encoding: its files hold compressed differences "
        "from another version of the weights, and no weights; give the path of "
        "a version without delta_encoding");
  }

  absl::Status AddFile(absl::string_view file) {
    if (absl::Status status = CheckRelativePath(file); !status.ok()) {
      return absl::DataLossError(absl::StrCat("weight_map ", ShortJson(name_),
                                              ": ", status.message()));
    }
    if (name_.size() > kMaxNameBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a tensor name of ", name_.size(), " bytes exceeds ", kMaxNameBytes));
    }
    if (!files_.emplace(name_, file).second) {
      return absl::DataLossError(
          absl::StrCat("weight_map has ", ShortJson(name_), " twice"));
    }
    return absl::OkStatus();
  }

  absl::flat_hash_map<std::string, std::string>& files_;
  std::string name_;
  bool in_metadata_ = false;
  bool in_weight_map_ = false;
  bool has_weight_map_ = false;
};

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>>
ParseSafetensorsIndex(ByteSpan json) {
  absl::flat_hash_map<std::string, std::string> files;
  IndexParser parser(files);
  DCP_RETURN_IF_ERROR(ParseJson(AsText(json), [&](const JsonEvent& event) {
    return parser.Handle(event);
  }));
  if (!parser.has_weight_map()) {
    return absl::DataLossError("index lacks weight_map");
  }
  return files;
}

std::string WriteSafetensorsIndex(
    uint64_t total_size,
    absl::Span<const std::pair<std::string, std::string>> weight_map) {
  std::string out =
      absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", total_size,
                   "\n  },\n  \"weight_map\": {");
  for (size_t i = 0; i < weight_map.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "\n    " : ",\n    ",
                    QuoteJson(weight_map[i].first), ": ",
                    QuoteJson(weight_map[i].second));
  }
  absl::StrAppend(&out, weight_map.empty() ? "}\n}\n" : "\n  }\n}\n");
  return out;
}

}  // namespace dcp
