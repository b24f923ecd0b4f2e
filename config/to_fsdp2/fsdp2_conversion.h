// SPDX-License-Identifier: Apache-2.0
// ConvertToFsdp2: keeps, changes or drops each FSDP1 option in a text. For
// to_fsdp2, which decides which files can be converted and reads the result
// again. Any thread.
#ifndef CONFIG_TO_FSDP2_FSDP2_CONVERSION_H_
#define CONFIG_TO_FSDP2_FSDP2_CONVERSION_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/read_config.h"
#include "config/to_fsdp2/options_layout.h"

namespace fsdp::config {

struct Fsdp1Text {
  absl::string_view name;  // for messages
  absl::string_view text;
  // The same text, except that a Python dict is a YAML map in it.
  absl::string_view as_yaml;
};

// Returns a version 2 file without the options that version 1 left in it: they
// are dropped, and a strategy's name becomes true or false. `found` must have
// options. Returns nothing if `findings` got a problem.
std::optional<std::string> MendFsdp2(const Fsdp1Text& file, OptionsLayout found,
                                     const ReadConfig& read,
                                     Findings& findings);

// Returns the new text. `found` comes from `as_yaml`, and `read` from the text.
// Returns nothing if `findings` got a problem.
std::optional<std::string> ConvertToFsdp2(const Fsdp1Text& file,
                                          OptionsLayout found,
                                          const ReadConfig& read,
                                          Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_TO_FSDP2_FSDP2_CONVERSION_H_
