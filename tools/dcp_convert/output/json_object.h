// SPDX-License-Identifier: Apache-2.0
// The common part of all JSON objects that --json prints. Every object has
// "verb" and the schema's "version". Bytes that are not UTF-8 are printed as
// U+FFFD. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace dcp::tools {

using Json = nlohmann::ordered_json;

// Every schema's version; a change that could break a reader raises it.
inline constexpr int kJsonVersion = 1;

// An object with only the common fields.
Json JsonHeader(absl::string_view verb);

// A text as nlohmann takes it.
std::string JsonText(absl::string_view text);

// Warnings about parts that a checkpoint lacks.
Json WarningsJson(absl::Span<const std::string> warnings);

// One line, without and with the newline.
std::string DumpBareJson(const Json& json);
std::string DumpJson(const Json& json);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_JSON_OBJECT_H_
