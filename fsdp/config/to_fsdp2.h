// to_fsdp2: a config of accelerate or Composer for FSDP1 as the same file for
// FSDP2, with its comments and all that is about other things as they were.
// The job of `accelerate to-fsdp2`. Any thread.
#ifndef FSDP_CONFIG_TO_FSDP2_H_
#define FSDP_CONFIG_TO_FSDP2_H_

#include <string>

#include "absl/strings/string_view.h"
#include "fsdp/config/findings.h"

namespace fsdp {

struct ToFsdp2 {
  std::string text;   // the new file; the old one when nothing changed
  Findings findings;  // each option that was changed or dropped, and why
};

// `name` is for messages and says the syntax. Problems: what read_config_text
// says of the text, a dialect that has no FSDP1, and a layout of YAML that
// cannot be edited line by line (a map in braces over several lines).
ToFsdp2 to_fsdp2(absl::string_view name, absl::string_view text);

}  // namespace fsdp

#endif  // FSDP_CONFIG_TO_FSDP2_H_
