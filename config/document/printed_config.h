// SPDX-License-Identifier: Apache-2.0
// Finds the config that TorchTitan prints for a run, "Running with configs:
// {...}", in a log. For read_config. Pure; any thread.
#ifndef CONFIG_DOCUMENT_PRINTED_CONFIG_H_
#define CONFIG_DOCUMENT_PRINTED_CONFIG_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fsdp::config {

// The JSON, on the same lines as in the log, without the "[rank0]:" that
// torchrun puts before each line; the rest of the log is blank. Empty if the
// text has no such config.
std::string ExtractPrintedConfig(absl::string_view text);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_PRINTED_CONFIG_H_
