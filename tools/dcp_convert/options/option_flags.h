// SPDX-License-Identifier: Apache-2.0
// WithFlags: gives the errors of the library, which name the fields of its
// options, the flags of this command. Pure.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_OPTION_FLAGS_H_
#define TOOLS_DCP_CONVERT_OPTIONS_OPTION_FLAGS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp::tools {

// `message` with "--overwrite" in place of "the option overwrite", and so on
// for every field that an error of dcp names and that has a flag.
std::string WithFlags(absl::string_view message);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_OPTION_FLAGS_H_
