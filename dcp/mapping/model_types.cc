// Tested by tests/dcp/maps/builtin_mappings_test.cc.
#include "dcp/mapping/model_types.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/format/json.h"

namespace dcp {
namespace {

constexpr absl::string_view kModelType = "model_type";

}  // namespace

absl::StatusOr<std::vector<std::string>> ModelTypesIn(
    absl::string_view config) {
  std::string outer;
  std::string inner;
  std::string key;      // the last one at depth 1
  std::string sub_key;  // the same at depth 2
  const absl::Status parsed =
      ParseJson(config, [&](const JsonEvent& event) -> absl::Status {
        if (event.kind == JsonEvent::Kind::kKey) {
          if (event.depth == 1) key = std::string(event.text);
          if (event.depth == 2) sub_key = std::string(event.text);
        } else if (event.kind == JsonEvent::Kind::kString) {
          if (event.depth == 1 && key == kModelType) {
            outer = std::string(event.text);
          }
          if (event.depth == 2 && key == "text_config" &&
              sub_key == kModelType) {
            inner = std::string(event.text);
          }
        }
        return absl::OkStatus();
      });
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", parsed.message()));
  }
  std::vector<std::string> types;
  for (std::string* type : {&outer, &inner}) {
    if (!type->empty()) types.push_back(std::move(*type));
  }
  return types;
}

}  // namespace dcp
