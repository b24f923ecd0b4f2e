// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/help.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/version.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

// The column where the option descriptions begin.
constexpr int kHelpColumn = 26;

}  // namespace

absl::string_view ExitCodeHelp() {
  return "  0    done, or equal\n"
         "  1    verify or diff found something\n"
         "  2    the command line is wrong\n"
         "  3    the source is unreadable or malformed\n"
         "  4    the destination could not be written\n"
         "  5    refused: exists, does not fit, or would lose something\n"
         "  6    verify had no checksum to compare the content with\n"
         "  130  interrupted; nothing half-written is left\n";
}

std::string GeneralHelp() {
  std::string text =
      "dcp-convert: reads, writes, reshards, checks and compares checkpoints\n"
      "of PyTorch Distributed Checkpoint (dcp), safetensors and torch.save "
      "(pt).\n\n"
      "Usage: dcp-convert VERB [OPTION]... PATH...\n\nVerbs:\n";
  for (const VerbRow& row : AllVerbs()) {
    absl::StrAppendFormat(&text, "  %-13s%-10s%s\n", row.name, row.operands,
                          row.summary);
  }
  absl::StrAppend(
      &text,
      "\n'dcp-convert VERB --help' explains a verb, with examples;\n"
      "'dcp-convert --version' prints the version, and --licenses the "
      "licences.\n"
      "'--' ends the options.\n"
      "'dcp-convert man | man -l -' shows the manual page, and\n"
      "'source <(dcp-convert completion bash)' lets a shell complete words; "
      "fish\nand zsh work as well.\n\nExit codes:\n",
      ExitCodeHelp());
  return text;
}

std::string VerbHelp(Verb verb) {
  const VerbRow& row = RowForVerb(verb);
  std::string text = absl::StrCat(
      "Usage: dcp-convert ", row.name, " [OPTION]... ", row.operands, "\n\n",
      row.description, "\nOptions ('...': may be given several times):\n");
  AppendVerbOptions(Tool(), row, kHelpColumn, text);
  absl::StrAppend(&text, "\nExamples:\n");
  AppendExamples(row, text);
  absl::StrAppend(&text, "\nExit codes:\n", ExitCodeHelp());
  return text;
}

std::string VersionText() {
  return absl::StrCat("dcp-convert ", kVersion, "\n");
}

}  // namespace dcp::tools
