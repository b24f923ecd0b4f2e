// SPDX-License-Identifier: Apache-2.0
// The command line of a tool with verbs: its verbs and options as tables, and
// the parsing of both. Values and which options fit together are the tool's own
// matter. dcp-convert and fsdp-config use it. Constant data and pure functions;
// any thread.
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

// The set with one member of a tool's enum of verbs.
template <typename Verb>
constexpr uint32_t VerbBit(Verb verb) {
  return uint32_t{1} << static_cast<uint32_t>(verb);
}

struct VerbRow {
  uint32_t bit;  // VerbBit
  const char* name;
  const char* operands;     // "SRC DST"; empty: none
  const char* summary;      // one line
  const char* description;  // paragraphs of at most 78 columns
  const char* examples;     // lines of shell
};

struct VerbOption {
  const char* name;   // without the dashes
  const char* value;  // what stands for the value in help; null: a flag
  uint32_t verbs;     // of VerbBit
  const char* help;   // lines of at most 52 columns
  bool repeatable = false;
  // All allowed values, separated by spaces, if there are few; otherwise null.
  const char* choices = nullptr;
};

// A row of a tool's table; `Line` is the struct of its parsed command line.
template <typename Line>
struct OptionRow : VerbOption {
  // Stores `value`, or returns what is wrong with it.
  absl::Status (*apply)(absl::string_view value, Line& line);
};

// A word that users of other programs type, and ours for it.
struct Habit {
  absl::string_view word;  // a verb, or an option without its dashes
  // A verb, "--overwrite", "--progress none", or an operand such as "DST".
  absl::string_view meaning;
};

struct VerbTool {
  absl::string_view name;  // "dcp-convert"
  absl::Span<const VerbRow> verbs;
  // Words that may stand where a verb does and are not verbs.
  std::vector<absl::string_view> other_words = {};
  absl::Span<const Habit> habits = {};
  std::vector<VerbOption> options;
  OptionSyntax syntax = {};
  // "-x" is an operand, not an unknown option.
  bool short_words_are_operands = false;
};

// The rows without what applies them, for VerbTool.
template <typename Line>
std::vector<VerbOption> OptionsOf(absl::Span<const OptionRow<Line>> rows) {
  return std::vector<VerbOption>(rows.begin(), rows.end());
}

// InvalidArgument with the message and, in parentheses, which help to read:
// that of the verb, or the general one if `verb` is null.
absl::Status UsageError(const VerbTool& tool, const VerbRow* verb,
                        absl::string_view message);

// Null if there is no such verb.
const VerbRow* FindVerb(const VerbTool& tool, absl::string_view name);

// The error for a word in the place of a verb. It names the verb of a habit,
// the nearest one, or all.
absl::Status UnknownVerb(const VerbTool& tool, absl::string_view word);

// The names of the verbs that take the option.
std::vector<absl::string_view> VerbsThatTake(const VerbTool& tool,
                                             const VerbOption& option);

// `args` follow the verb. Calls `apply` with the index in `tool.options` and
// the value of each option in order, and returns the other words; "-h" is the
// option "help". The error is a UsageError about the first word that is wrong.
absl::StatusOr<std::vector<std::string>> ParseVerbOptions(
    const VerbTool& tool, const VerbRow& verb,
    absl::Span<const std::string> args,
    absl::FunctionRef<absl::Status(size_t option, absl::string_view value)>
        apply);

// Appends the options of a verb to its help, explained from `column` on.
void AppendVerbOptions(const VerbTool& tool, const VerbRow& verb, int column,
                       std::string& text);

// Appends lines of shell, indented by two.
void AppendExamples(const VerbRow& verb, std::string& text);

}  // namespace dcp::tools

#endif  // TOOLS_OPTIONS_VERB_OPTIONS_H_
