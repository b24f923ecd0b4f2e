// The config that TorchTitan prints of a run, "Running with configs: {...}",
// out of its log. For read_config. Pure; any thread.
#ifndef FSDP_CONFIG_PRINTED_CONFIG_H_
#define FSDP_CONFIG_PRINTED_CONFIG_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fsdp::config {

// The JSON, on the lines where the log has it, without the "[rank0]:" that
// torchrun puts before each; the log around it is blank. Empty: the text has
// none.
std::string PrintedConfigOf(absl::string_view text);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_PRINTED_CONFIG_H_
