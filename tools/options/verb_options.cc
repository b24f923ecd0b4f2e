// SPDX-License-Identifier: Apache-2.0

#include "tools/options/verb_options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "dcp/options/option_help.h"

namespace dcp::tools {
namespace {

using Kind = OptionWord::Kind;

// One verb's options, and their positions in the tool's table.
struct TakenOptions {
  std::vector<OptionSpec> specs;
  std::vector<size_t> rows;
};

TakenOptions VerbOptions(const VerbTool& tool, const VerbRow& verb) {
  TakenOptions taken;
  for (size_t i = 0; i < tool.options.size(); ++i) {
    const VerbOption& option = tool.options[i];
    if (!(option.verbs & verb.bit)) continue;
    taken.specs.push_back({option.name, option.value != nullptr});
    taken.rows.push_back(i);
  }
  return taken;
}

const VerbOption* FindOption(const VerbTool& tool, absl::string_view name) {
  for (const VerbOption& option : tool.options) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

// The option that a user means by this name, in a verb that takes `taken`: "did
// you mean '--overwrite'?"; empty if no habit is known.
std::string Suggestion(const VerbTool& tool, const VerbRow& verb,
                       absl::string_view name, const TakenOptions& taken) {
  for (const auto& [word, meaning] : tool.habits) {
    if (word != name) continue;
    if (absl::StrContains(verb.operands, meaning)) {
      return absl::StrCat(meaning, " is a word of its own: ", tool.name, " ",
                          verb.name, " ", verb.operands);
    }
    const absl::string_view option =
        absl::StripPrefix(meaning.substr(0, meaning.find(' ')), "--");
    for (const OptionSpec& spec : taken.specs) {
      if (spec.name != option) continue;
      return absl::StrCat("did you mean '", meaning, "'?");
    }
  }
  return "";
}

absl::Status UnknownOption(const VerbTool& tool, const VerbRow& verb,
                           const OptionWord& word, const TakenOptions& taken) {
  if (const VerbOption* other = FindOption(tool, word.name)) {
    return UsageError(
        tool, &verb,
        absl::StrCat("--", word.name, " is not an option of ", verb.name,
                     " but of ",
                     absl::StrJoin(VerbsThatTake(tool, *other), ", ")));
  }
  std::vector<absl::string_view> names;
  std::vector<absl::string_view> begin_so;
  for (const OptionSpec& spec : taken.specs) {
    names.push_back(spec.name);
    if (absl::StartsWith(spec.name, word.name)) begin_so.push_back(spec.name);
  }
  if (word.kind == Kind::kAmbiguous) {
    return UsageError(
        tool, &verb,
        absl::StrCat("option '--", word.name, "' is ambiguous: --",
                     absl::StrJoin(begin_so, ", --")));
  }
  std::string meant = Suggestion(tool, verb, word.name, taken);
  const absl::string_view nearest = NearestWord(word.name, names);
  if (meant.empty() && !nearest.empty()) {
    meant = absl::StrCat("did you mean '--", nearest, "'?");
  }
  return UsageError(tool, &verb,
                    absl::StrCat("unknown option '--", word.name, "'",
                                 meant.empty() ? "" : ": ", meant));
}

absl::Status RefuseWord(const VerbTool& tool, const VerbRow& verb,
                        const OptionWord& word, const TakenOptions& taken) {
  if (word.kind == Kind::kShort) {
    const std::string meant =
        Suggestion(tool, verb, absl::StripPrefix(word.text, "-"), taken);
    return UsageError(tool, &verb,
                      absl::StrCat("unknown option '", word.text, "'",
                                   meant.empty() ? "" : ": ", meant));
  }
  if (word.kind == Kind::kUnknown || word.kind == Kind::kAmbiguous) {
    return UnknownOption(tool, verb, word, taken);
  }
  const VerbOption& option = tool.options[taken.rows[word.index]];
  return UsageError(tool, &verb,
                    word.kind == Kind::kMissingValue
                        ? absl::StrCat("option --", option.name,
                                       " requires a value: ", option.value)
                        : absl::StrCat("option --", option.name,
                                       " takes no value: '", word.value, "'"));
}

}  // namespace

absl::Status UsageError(const VerbTool& tool, const VerbRow* verb,
                        absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(
      message, " (try ", tool.name, " ",
      verb == nullptr ? "" : absl::StrCat(verb->name, " "), "--help)"));
}

const VerbRow* FindVerb(const VerbTool& tool, absl::string_view name) {
  for (const VerbRow& row : tool.verbs) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

absl::Status UnknownVerb(const VerbTool& tool, absl::string_view word) {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : tool.verbs) names.emplace_back(row.name);
  names.insert(names.end(), tool.other_words.begin(), tool.other_words.end());
  absl::string_view nearest = NearestWord(word, names);
  for (const Habit& habit : tool.habits) {
    if (habit.word == word && FindVerb(tool, habit.meaning) != nullptr) {
      nearest = habit.meaning;
    }
  }
  return UsageError(
      tool, nullptr,
      absl::StrCat("unknown verb '", word, "': ",
                   nearest.empty()
                       ? absl::StrCat("expected ", absl::StrJoin(names, ", "))
                       : absl::StrCat("did you mean '", nearest, "'?")));
}

std::vector<absl::string_view> VerbsThatTake(const VerbTool& tool,
                                             const VerbOption& option) {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : tool.verbs) {
    if (option.verbs & row.bit) names.emplace_back(row.name);
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> ParseVerbOptions(
    const VerbTool& tool, const VerbRow& verb,
    absl::Span<const std::string> args,
    absl::FunctionRef<absl::Status(size_t option, absl::string_view value)>
        apply) {
  const TakenOptions taken = VerbOptions(tool, verb);
  std::vector<std::string> operands;
  for (OptionWord& word : SplitOptionWords(args, taken.specs, tool.syntax)) {
    // A name's prefix stands for the name, but this word may be the complete
    // name of another verb's option, or have a meaning to users of other
    // programs.
    if (word.kind == Kind::kOption &&
        word.name != taken.specs[word.index].name &&
        (FindOption(tool, word.name) != nullptr ||
         !Suggestion(tool, verb, word.name, taken).empty())) {
      word.kind = Kind::kUnknown;
    }
    if (word.kind == Kind::kShort && word.text == "-h") {
      word = SplitOptionWords({"--help"}, taken.specs, tool.syntax)[0];
    }
    if (word.kind == Kind::kOperand ||
        (word.kind == Kind::kShort && tool.short_words_are_operands)) {
      operands.push_back(word.text);
      continue;
    }
    if (word.kind != Kind::kOption) return RefuseWord(tool, verb, word, taken);
    const size_t option = taken.rows[word.index];
    if (absl::Status status = apply(option, word.value); !status.ok()) {
      return UsageError(tool, &verb,
                        absl::StrCat("--", tool.options[option].name, ": ",
                                     status.message()));
    }
  }
  return operands;
}

void AppendVerbOptions(const VerbTool& tool, const VerbRow& verb, int column,
                       std::string& text) {
  for (const VerbOption& option : tool.options) {
    if (!(option.verbs & verb.bit)) continue;
    std::string head = absl::StrCat("--", option.name);
    if (option.value != nullptr) absl::StrAppend(&head, " ", option.value);
    if (option.repeatable) head += "...";
    AppendOptionHelp(head, option.help, column, text);
  }
}

void AppendExamples(const VerbRow& verb, std::string& text) {
  for (absl::string_view line : absl::StrSplit(verb.examples, '\n')) {
    if (!line.empty()) absl::StrAppend(&text, "  ", line, "\n");
  }
}

}  // namespace dcp::tools
