// SPDX-License-Identifier: Apache-2.0
// SplitOptionWords: the arguments of a program, recognised as options and their
// values by the table of the program's options. It neither interprets values
// nor words messages: callers apply the options in order and explain the words
// that are not right. dcp-convert, fsdp-config, dcp-server and train_llama call
// it. Pure; any thread.
#ifndef DCP_OPTIONS_OPTION_WORDS_H_
#define DCP_OPTIONS_OPTION_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// What parsing must know of an option.
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
  // The beginning of a name stands for the name if no other begins so.
  bool abbreviations = false;
  // "--output_file" is "--output-file".
  bool underscores = false;
};

struct OptionWord {
  enum class Kind : uint8_t {
    kOption,         // "--name", "--name=value" or "--name value"
    kMissingValue,   // a known option, whose value is missing
    kUnwantedValue,  // a known flag, which has a value
    kUnknown,        // "--name" or "--name=value", and no option of that name
    kAmbiguous,      // the beginning of several names
    kShort,          // "-x"; the program decides which of these it accepts
    kOperand,        // any other word
  };

  Kind kind = Kind::kOperand;
  std::string text = {};  // the first word, as given
  std::string name = {};  // of options: as given, without dashes and value
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
