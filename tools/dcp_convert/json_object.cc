// Tested by tests/tools/dcp_convert/json_output_test.cc.
#include "tools/dcp_convert/json_object.h"

namespace dcp::tools {

Json JsonHeader(absl::string_view verb) {
  return Json{{"verb", JsonText(verb)}, {"version", kJsonVersion}};
}

std::string JsonText(absl::string_view text) { return std::string(text); }

std::string DumpBareJson(const Json& json) {
  return json.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

std::string DumpJson(const Json& json) { return DumpBareJson(json) + "\n"; }

}  // namespace dcp::tools
