// SPDX-License-Identifier: Apache-2.0
// Writes the tables as troff.
// Tested by tests/tools/dcp_convert/options/help_test.cc.
#include "tools/dcp_convert/options/man_page.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dcp/base/version.h"
#include "tools/dcp_convert/options/help.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

// Escapes a line for troff: a dash stays an ASCII dash, and a dot or quote at
// the beginning does not start a request.
std::string Escaped(absl::string_view line) {
  std::string text = absl::StrReplaceAll(line, {{"\\", "\\e"}, {"-", "\\-"}});
  if (absl::StartsWith(text, ".") || absl::StartsWith(text, "'")) {
    text.insert(0, "\\&");
  }
  return text;
}

void AppendText(absl::string_view lines, std::string& text) {
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    if (!line.empty()) absl::StrAppend(&text, Escaped(line), "\n");
  }
}

void AppendLiteral(absl::string_view lines, std::string& text) {
  absl::StrAppend(&text, ".PP\n.nf\n");
  AppendText(lines, text);
  absl::StrAppend(&text, ".fi\n");
}

void AppendVerb(const VerbRow& row, std::string& text) {
  absl::StrAppend(&text, ".SS ", Escaped(row.name), " [OPTION]... ",
                  Escaped(row.operands), "\n");
  AppendText(row.description, text);
  AppendLiteral(row.examples, text);
}

void AppendOption(const VerbOption& row, std::string& text) {
  absl::StrAppend(&text, ".TP\n.B \\-\\-", Escaped(row.name));
  if (row.value != nullptr) absl::StrAppend(&text, " ", Escaped(row.value));
  absl::StrAppend(&text, "\n");
  AppendText(row.help, text);
  if (row.repeatable) {
    absl::StrAppend(&text, "It may be given several times.\n");
  }
  const std::string verbs = absl::StrJoin(VerbsThatTake(Tool(), row), ", ");
  absl::StrAppend(&text, ".br\nVerbs: ", Escaped(verbs), ".\n");
}

}  // namespace

std::string ManPage() {
  std::string text = absl::StrCat(
      ".TH DCP\\-CONVERT 1 \"\" \"dcp\\-convert ", kVersion, "\" \"\"\n",
      ".SH NAME\n"
      "dcp\\-convert \\- read, write, reshard, check and compare checkpoints "
      "of PyTorch\n"
      ".SH SYNOPSIS\n.B dcp\\-convert\nVERB [OPTION]... PATH...\n"
      ".SH DESCRIPTION\n"
      "The formats are PyTorch Distributed Checkpoint (dcp), safetensors and "
      "torch.save (pt).\n"
      ".SH VERBS\n");
  for (const VerbRow& row : AllVerbs()) AppendVerb(row, text);
  absl::StrAppend(&text, ".SH OPTIONS\n");
  for (const VerbOption& row : Tool().options) AppendOption(row, text);
  absl::StrAppend(&text, ".SH EXIT STATUS\n");
  AppendLiteral(ExitCodeHelp(), text);
  absl::StrAppend(&text,
                  ".SH ENVIRONMENT\n"
                  ".TP\n.B TESSERA_SERVER\nThe default of "
                  "\\-\\-server.\n"
                  ".TP\n.B TESSERA_TOKEN\nA token to show to the server.\n");
  return text;
}

}  // namespace dcp::tools
