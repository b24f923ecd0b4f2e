// SPDX-License-Identifier: Apache-2.0
// dcp-convert's verbs and options as tables. Parsing, help and suggestions for
// misspelt words all use them. Constant data; any thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_OPTION_TABLE_H_
#define TOOLS_DCP_CONVERT_OPTIONS_OPTION_TABLE_H_

#include "absl/types/span.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/options/verb_options.h"

namespace dcp::tools {

absl::Span<const VerbRow> AllVerbs();
const VerbRow& RowForVerb(Verb verb);
Verb VerbForRow(const VerbRow& row);

// A verb's first word if it has several: an action, and the operand.
struct Action {
  const char* name;
  const char* operand;  // null: none
};

// The verb's actions; empty if it takes paths instead.
absl::Span<const Action> VerbActions(const VerbRow& verb);

absl::Span<const OptionRow<CommandLine>> AllOptions();

// Both tables, for parsing and help.
const VerbTool& Tool();

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_OPTION_TABLE_H_
