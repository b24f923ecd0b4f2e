// SPDX-License-Identifier: Apache-2.0
// Completion: scripts that make a shell complete verbs, options and values,
// from the same tables as the help. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_COMPLETION_H_
#define TOOLS_DCP_CONVERT_OPTIONS_COMPLETION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp::tools {

// "bash", "fish", "zsh".
absl::Span<const absl::string_view> CompletionShells();

// The script for one of CompletionShells().
std::string CompletionScript(absl::string_view shell);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_COMPLETION_H_
