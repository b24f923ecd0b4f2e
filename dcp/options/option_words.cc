// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/option_words.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace dcp {
namespace {

using Kind = OptionWord::Kind;
using Style = OptionSyntax::Style;

// Sets kind and index by the name alone.
void FindName(absl::Span<const OptionSpec> options, const OptionSyntax& syntax,
              OptionWord& word) {
  const std::string name = syntax.underscores
                               ? absl::StrReplaceAll(word.name, {{"_", "-"}})
                               : word.name;
  size_t num_begin_so = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i].name == name) {
      word.kind = Kind::kOption;
      word.index = i;
      return;
    }
    if (!syntax.abbreviations || !absl::StartsWith(options[i].name, name)) {
      continue;
    }
    ++num_begin_so;
    word.index = i;
  }
  word.kind = num_begin_so == 0   ? Kind::kUnknown
              : num_begin_so == 1 ? Kind::kOption
                                  : Kind::kAmbiguous;
}

// Splits a word that begins with "--"; the value may be a separate word.
OptionWord SplitOption(absl::string_view text,
                       absl::Span<const OptionSpec> options,
                       const OptionSyntax& syntax) {
  OptionWord word;
  word.text = std::string(text);
  const absl::string_view rest = absl::StripPrefix(text, "--");
  const size_t equals = rest.find('=');
  word.name = std::string(rest.substr(0, equals));
  word.has_value = equals != absl::string_view::npos;
  if (word.has_value) word.value = std::string(rest.substr(equals + 1));
  FindName(options, syntax, word);
  return word;
}

bool MayBeValue(absl::string_view word, const OptionSyntax& syntax) {
  return syntax.style == Style::kCommand || !absl::StartsWith(word, "--");
}

}  // namespace

std::vector<OptionWord> SplitOptionWords(absl::Span<const std::string> args,
                                         absl::Span<const OptionSpec> options,
                                         const OptionSyntax& syntax) {
  std::vector<OptionWord> words;
  bool options_end = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const absl::string_view text = args[i];
    if (options_end || text.size() < 2 || text[0] != '-') {
      words.push_back({.kind = Kind::kOperand, .text = args[i]});
      continue;
    }
    if (text == "--") {
      options_end = syntax.style == Style::kCommand;
      if (!options_end) {
        words.push_back({.kind = Kind::kOperand, .text = args[i]});
      }
      continue;
    }
    if (text[1] != '-') {
      words.push_back({.kind = Kind::kShort, .text = args[i]});
      continue;
    }
    OptionWord word = SplitOption(text, options, syntax);
    if (word.kind == Kind::kOption) {
      const bool takes_value = options[word.index].takes_value;
      if (takes_value && !word.has_value) {
        if (i + 1 < args.size() && MayBeValue(args[i + 1], syntax)) {
          word.value = args[++i];
          word.has_value = true;
        } else {
          word.kind = Kind::kMissingValue;
        }
      } else if (!takes_value && word.has_value &&
                 syntax.style == Style::kCommand) {
        word.kind = Kind::kUnwantedValue;
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace dcp
