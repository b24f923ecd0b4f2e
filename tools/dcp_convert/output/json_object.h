// SPDX-License-Identifier: Apache-2.0
// What all JSON objects that --json prints have in common. Every object has
// "verb" and the "version" of its schema. Bytes that are not UTF-8 are printed
// as U+FFFD. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace dcp::tools {

using Json = nlohmann::ordered_json;

// The version of every schema; a change that could break a reader raises it.
inline constexpr int kJsonVersion = 1;

// An object that so far has the fields of all.
Json JsonHeader(absl::string_view verb);

// A text as nlohmann takes it.
std::string JsonText(absl::string_view text);

// What a checkpoint lacks.
Json WarningsJson(absl::Span<const std::string> warnings);

// One line, without and with its end.
std::string DumpBareJson(const Json& json);
std::string DumpJson(const Json& json);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_
