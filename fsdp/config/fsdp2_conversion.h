// ConvertToFsdp2: the options of FSDP1 in a text, each kept, changed or
// dropped. For to_fsdp2, which says what can be converted and reads the result
// again. Any thread.
#ifndef FSDP_CONFIG_FSDP2_CONVERSION_H_
#define FSDP_CONFIG_FSDP2_CONVERSION_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "fsdp/config/findings.h"
#include "fsdp/config/options_layout.h"
#include "fsdp/config/read_config.h"

namespace fsdp::config {

struct Fsdp1Text {
  absl::string_view name;  // for messages
  absl::string_view text;
  // The same bytes, but that of Python's dict there is YAML's map.
  absl::string_view as_yaml;
};

// A file of version 2 without the options that version 1 left in it: they are
// dropped, and a strategy's name becomes true or false. `found` has options.
// Nothing: a problem was said.
std::optional<std::string> MendFsdp2(const Fsdp1Text& file, OptionsLayout found,
                                     const ReadConfig& read,
                                     Findings& findings);

// The new text. `found` is of `as_yaml`, and `read` of the text. Nothing: a
// problem was said.
std::optional<std::string> ConvertToFsdp2(const Fsdp1Text& file,
                                          OptionsLayout found,
                                          const ReadConfig& read,
                                          Findings& findings);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_FSDP2_CONVERSION_H_
