// SPDX-License-Identifier: Apache-2.0
// fsdp-config's verbs and options as tables, from which parsing and help are
// made. Constant data; any thread.
#ifndef TOOLS_FSDP_CONFIG_OPTION_TABLE_H_
#define TOOLS_FSDP_CONFIG_OPTION_TABLE_H_

#include "absl/types/span.h"
#include "tools/fsdp_config/command_line.h"
#include "tools/options/verb_options.h"

namespace fsdp::tools {

const dcp::tools::VerbRow& RowForVerb(Verb verb);
Verb VerbForRow(const dcp::tools::VerbRow& row);

absl::Span<const dcp::tools::OptionRow<CommandLine>> AllOptions();

// Both tables, for parsing and help.
const dcp::tools::VerbTool& Tool();

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_OPTION_TABLE_H_
