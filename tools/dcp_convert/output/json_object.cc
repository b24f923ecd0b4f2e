// SPDX-License-Identifier: Apache-2.0
// Wraps the calls to nlohmann's library.
// Tested by tests/tools/dcp_convert/output/json_output_test.cc.
#include "tools/dcp_convert/output/json_object.h"

#include "tools/dcp_convert/options/flag_names.h"

namespace dcp::tools {

Json JsonHeader(absl::string_view verb) {
  return Json{{"verb", JsonText(verb)}, {"version", kJsonVersion}};
}

std::string JsonText(absl::string_view text) { return std::string(text); }

Json WarningsJson(absl::Span<const std::string> warnings) {
  Json json = Json::array();
  for (const std::string& warning : warnings) {
    json.push_back(JsonText(WithFlags(warning)));
  }
  return json;
}

std::string DumpBareJson(const Json& json) {
  return json.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

std::string DumpJson(const Json& json) { return DumpBareJson(json) + "\n"; }

}  // namespace dcp::tools
