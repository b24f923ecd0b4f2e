// SPDX-License-Identifier: Apache-2.0
// AppendOptionHelp: the --help lines for one option, in two columns. Pure; any
// thread.
#ifndef DCP_OPTIONS_OPTION_HELP_H_
#define DCP_OPTIONS_OPTION_HELP_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// `head` is "--name VALUE" or similar, `help` is lines separated by '\n', which
// begin at `column`. A head that reaches into that column gets a separate line.
void AppendOptionHelp(absl::string_view head, absl::string_view help,
                      int column, std::string& text);

}  // namespace dcp

#endif  // DCP_OPTIONS_OPTION_HELP_H_
