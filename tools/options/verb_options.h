// SPDX-License-Identifier: Apache-2.0
// The command line of a tool with verbs: the tables of verbs and options, and
// the parser for both. The tool itself checks values and combinations of
// options. dcp-convert and fsdp-config use it. Constant data and pure
// functions; any thread.
#ifndef TOOLS_OPTIONS_VERB_OPTIONS_H_
#define TOOLS_OPTIONS_VERB_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/options/option_words.h"

namespace dcp::tools {

// The set with one member of a tool's verb enum.
template <typename Verb>
constexpr uint32_t VerbBit(Verb verb) {
  return uint32_t{1} << static_cast<uint32_t>(verb);
}

struct VerbRow {
  uint32_t bit;  // VerbBit
  const char* name;
  const char* operands;     // "SRC DST"; empty: none
  const char* summary;      // one line
  const char* description;  // paragraphs, at most 78 columns wide
  const char* examples;     // shell lines
};

struct VerbOption {
  const char* name;   // without the dashes
  const char* value;  // the placeholder for the value in help; null: a flag
  uint32_t verbs;     // set of VerbBit
  const char* help;   // lines, at most 52 columns wide
  bool repeatable = false;
  // All allowed values, separated by spaces, if there are few; otherwise null.
  const char* choices = nullptr;
};

// A row in a tool's table; `Line` is the struct for the parsed command line.
template <typename Line>
struct OptionRow : VerbOption {
  // Stores `value`, or returns an error that explains the mistake.
  absl::Status (*apply)(absl::string_view value, Line& line);
  // The fields that it sets, for a program whose library names them in messages
  // (dcp/base/option_name.h): "field", or "field=value" if one value sets it;
  // separated by spaces. Null: the field is called as the option; or the option
  // is "no-FIELD", and clears it.
  const char* fields = nullptr;
};

// A word from other programs that users type, and our word for it.
struct Habit {
  absl::string_view word;  // a verb, or an option without the dashes
  // A verb, "--overwrite", "--progress none", or an operand such as "DST".
  absl::string_view meaning;
};

struct VerbTool {
  absl::string_view name;  // "dcp-convert"
  absl::Span<const VerbRow> verbs;
  // Words that may stand in a verb's place and are not verbs.
  std::vector<absl::string_view> other_words = {};
  absl::Span<const Habit> habits = {};
  std::vector<VerbOption> options;
  OptionSyntax syntax = {};
  // "-x" is an operand, not an unknown option.
  bool short_words_are_operands = false;
};

// The rows without their `apply`, for VerbTool.
template <typename Line>
std::vector<VerbOption> ToolOptions(absl::Span<const OptionRow<Line>> rows) {
  return std::vector<VerbOption>(rows.begin(), rows.end());
}

// InvalidArgument with the message and, in parentheses, which help to read: the
// verb's, or the general one if `verb` is null.
absl::Status UsageError(const VerbTool& tool, const VerbRow* verb,
                        absl::string_view message);

// Null if there is no such verb.
const VerbRow* FindVerb(const VerbTool& tool, absl::string_view name);

// The error for a word in a verb's place. It names the verb that a habit means,
// the nearest one, or all.
absl::Status UnknownVerb(const VerbTool& tool, absl::string_view word);

// The names of the verbs that take the option.
std::vector<absl::string_view> VerbsThatTake(const VerbTool& tool,
                                             const VerbOption& option);

// `args` follow the verb. Calls `apply` with each option's index in
// `tool.options` and value, in order, and returns the other words; "-h" is the
// option "help". The error is a UsageError about the first wrong word.
absl::StatusOr<std::vector<std::string>> ParseVerbOptions(
    const VerbTool& tool, const VerbRow& verb,
    absl::Span<const std::string> args,
    absl::FunctionRef<absl::Status(size_t option, absl::string_view value)>
        apply);

// Appends a verb's options to the help, explained from `column` on.
void AppendVerbOptions(const VerbTool& tool, const VerbRow& verb, int column,
                       std::string& text);

// Appends shell lines, indented by two.
void AppendExamples(const VerbRow& verb, std::string& text);

}  // namespace dcp::tools

#endif  // TOOLS_OPTIONS_VERB_OPTIONS_H_
