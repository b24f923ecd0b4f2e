// Programs whose files are found near training configs and are not read here.
// For dialect_of. Pure; any thread.
#ifndef FSDP_CONFIG_DIALECTS_OTHER_PROGRAMS_H_
#define FSDP_CONFIG_DIALECTS_OTHER_PROGRAMS_H_

#include "absl/strings/string_view.h"
#include "fsdp/config/document/node.h"

namespace fsdp::config {

// The name of the program, recognized by keys that only its files have:
// "DeepSpeed", "nanotron", "Cargo". Empty: no known one.
absl::string_view OtherProgramOf(const Node& root);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_OTHER_PROGRAMS_H_
