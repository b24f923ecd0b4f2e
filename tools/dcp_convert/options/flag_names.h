// SPDX-License-Identifier: Apache-2.0
// dcp-convert's flags for the options that the library's texts name (see
// dcp/base/option_name.h). The option table knows them. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_FLAG_NAMES_H_
#define TOOLS_DCP_CONVERT_OPTIONS_FLAG_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

// The error's message, with "--overwrite" in place of "the option overwrite",
// for each option that the error carries.
std::string WithFlags(const absl::Status& error);

// The same for a warning or a finding. These are plain texts, so this replaces
// every option that has a flag.
std::string WithFlags(absl::string_view text);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_FLAG_NAMES_H_
