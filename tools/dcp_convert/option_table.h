// The verbs and options of dcp-convert as tables: parsing, help and the
// suggestions for misspelt words all use them. Constant data; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTION_TABLE_H_
#define TOOLS_DCP_CONVERT_OPTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/dcp_convert/command_line.h"

namespace dcp::tools {

struct VerbRow {
  Verb verb;
  const char* name;
  const char* operands;  // "SRC DST"
  size_t num_operands;
  const char* summary;      // one line
  const char* description;  // paragraphs of at most 78 columns
  const char* examples;     // lines of shell
};

struct OptionRow {
  const char* name;   // without the dashes
  const char* value;  // what stands for the value in help; null: a flag
  uint32_t verbs;     // of VerbBit
  bool repeatable;
  const char* help;  // lines of at most 52 columns
  // Stores `value`, or returns what is wrong with it.
  absl::Status (*apply)(absl::string_view value, CommandLine& line);
  // All allowed values, separated by spaces, if there are few; otherwise null.
  const char* choices = nullptr;
};

constexpr uint32_t VerbBit(Verb verb) {
  return uint32_t{1} << static_cast<uint32_t>(verb);
}

absl::Span<const VerbRow> AllVerbs();
const VerbRow& RowOf(Verb verb);
const VerbRow* FindVerb(absl::string_view name);

absl::Span<const OptionRow> AllOptions();
const OptionRow* FindOption(absl::string_view name);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTION_TABLE_H_
