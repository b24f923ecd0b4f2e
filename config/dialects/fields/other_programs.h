// Programs whose files are found near training configs and are not read here.
// For dialect_of. Pure; any thread.
#ifndef CONFIG_DIALECTS_FIELDS_OTHER_PROGRAMS_H_
#define CONFIG_DIALECTS_FIELDS_OTHER_PROGRAMS_H_

#include "absl/strings/string_view.h"
#include "config/document/node.h"

namespace fsdp::config {

// The name of the program, recognized by keys that only its files have:
// "DeepSpeed", "nanotron", "Cargo". Empty: no known one.
absl::string_view OtherProgramOf(const Node& root);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_OTHER_PROGRAMS_H_
