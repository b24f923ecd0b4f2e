// SPDX-License-Identifier: Apache-2.0
// SplitOptionWords: splits a program's arguments into options and values,
// according to the program's option table. It neither interprets values nor
// words messages: callers apply the options in order and explain wrong words.
// dcp-convert, fsdp-config, dcp-server and train_llama call it. Pure; any
// thread.
#ifndef DCP_OPTIONS_OPTION_WORDS_H_
#define DCP_OPTIONS_OPTION_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// The facts about an option that parsing needs.
struct OptionSpec {
  absl::string_view name;  // without the dashes
  bool takes_value = false;
};

struct OptionSyntax {
  // Commands are read as getopt_long reads them: "--" ends the options, the
  // word after an option that takes a value is the value, and a flag has none.
  // Settings are keys that a file may have as well: "--" is not special, a
  // value that begins with "--" must follow an equals sign, and a flag may have
  // a value, as in "--flag=false".
  enum class Style : uint8_t { kCommand, kSettings };

  Style style = Style::kCommand;
  // The beginning of a name stands for the name if no other name begins with
  // it.
  bool abbreviations = false;
  // "--output_file" is "--output-file".
  bool underscores = false;
};

struct OptionWord {
  enum class Kind : uint8_t {
    kOption,         // "--name", "--name=value" or "--name value"
    kMissingValue,   // a known option; the value is missing
    kUnwantedValue,  // a known flag, which has a value
    kUnknown,        // "--name" or "--name=value", but there is no such option
    kAmbiguous,      // the beginning of several names
    kShort,          // "-x"; the program decides which of these it accepts
    kOperand,        // any other word
  };

  Kind kind = Kind::kOperand;
  std::string text = {};  // the first word, as given
  std::string name = {};  // for options: as given, without dashes and value
  std::string value = {};
  bool has_value = false;
  // For the first three kinds: the option's index in the table.
  size_t index = 0;
};

// One entry per option or operand, in the order of `args`.
std::vector<OptionWord> SplitOptionWords(absl::Span<const std::string> args,
                                         absl::Span<const OptionSpec> options,
                                         const OptionSyntax& syntax);

}  // namespace dcp

#endif  // DCP_OPTIONS_OPTION_WORDS_H_
