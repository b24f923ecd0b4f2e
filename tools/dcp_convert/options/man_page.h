// SPDX-License-Identifier: Apache-2.0
// ManPage: dcp-convert(1), from the same tables as the help. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_MAN_PAGE_H_
#define TOOLS_DCP_CONVERT_OPTIONS_MAN_PAGE_H_

#include <string>

namespace dcp::tools {

// In troff's man macros, as groff and mandoc read them; see groff_man(7).
std::string ManPage();

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_MAN_PAGE_H_
