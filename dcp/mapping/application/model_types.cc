// SPDX-License-Identifier: Apache-2.0
// Finds a model's types in config.json, and compares them with a mapping's.
// Tested by tests/dcp/maps/builtin_mappings_test.cc.
#include "dcp/mapping/application/model_types.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/format/json/json.h"

namespace dcp {
namespace {

constexpr absl::string_view kModelType = "model_type";

// "deepseekv3" for DeepseekV3ForCausalLM; empty if it is not a model's class.
std::string ClassModelType(absl::string_view name) {
  for (const absl::string_view end : {"For", "LMHeadModel"}) {
    const size_t at = name.rfind(end);
    if (at != absl::string_view::npos) {
      return absl::AsciiStrToLower(name.substr(0, at));
    }
  }
  return "";
}

}  // namespace

bool IsModelType(absl::Span<const std::string> types,
                 absl::string_view model_type) {
  const std::string letters = absl::StrReplaceAll(model_type, {{"_", ""}});
  return std::any_of(types.begin(), types.end(), [&](const std::string& type) {
    return type == model_type || ClassModelType(type) == letters;
  });
}

absl::Status CheckModelType(absl::string_view mapping,
                            absl::Span<const std::string> model_types,
                            absl::string_view config) {
  if (config.empty() || model_types.empty()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> types,
                       ModelTypesIn(config));
  if (types.empty() || std::any_of(model_types.begin(), model_types.end(),
                                   [&](const std::string& type) {
                                     return IsModelType(types, type);
                                   })) {
    return absl::OkStatus();
  }
  return OptionError(absl::StatusCode::kInvalidArgument,
                     "config.json says that the type of the model is ",
                     absl::StrJoin(types, " or "), ", and the mapping ",
                     mapping, " is for ", absl::StrJoin(model_types, ", "),
                     "; if they are alike all the same, ",
                     OptionName{"force_family"}, " says so");
}

absl::StatusOr<std::vector<std::string>> ModelTypesIn(
    absl::string_view config) {
  std::string outer;
  std::string inner;
  std::string architecture;
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
          if (event.depth == 2 && key == "architectures" &&
              architecture.empty()) {
            architecture = std::string(event.text);
          }
        }
        return absl::OkStatus();
      });
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", parsed.message()));
  }
  std::vector<std::string> types;
  for (std::string* type : {&outer, &inner, &architecture}) {
    if (!type->empty()) types.push_back(std::move(*type));
  }
  return types;
}

}  // namespace dcp
