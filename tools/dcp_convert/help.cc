#include "tools/dcp_convert/help.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "dcp/base/version.h"
#include "tools/dcp_convert/option_table.h"

namespace dcp::tools {
namespace {

// The column at which the explanations of options begin.
constexpr int kHelpColumn = 26;

void AppendIndented(absl::string_view lines, std::string& text) {
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    if (!line.empty()) absl::StrAppend(&text, "  ", line, "\n");
  }
}

void AppendOption(const OptionRow& row, std::string& text) {
  std::string head = absl::StrCat("  --", row.name);
  if (row.value != nullptr) absl::StrAppend(&head, " ", row.value);
  if (row.repeatable) head += "...";
  const std::vector<std::string> lines = absl::StrSplit(row.help, '\n');
  // A heading that reaches into the column of explanations gets its own line.
  size_t first = 0;
  if (head.size() + 1 < static_cast<size_t>(kHelpColumn)) {
    absl::StrAppendFormat(&text, "%-*s%s\n", kHelpColumn, head, lines[0]);
    first = 1;
  } else {
    absl::StrAppend(&text, head, "\n");
  }
  for (size_t i = first; i < lines.size(); ++i) {
    absl::StrAppendFormat(&text, "%-*s%s\n", kHelpColumn, "", lines[i]);
  }
}

}  // namespace

absl::string_view ExitCodeHelp() {
  return "  0    done, or equal\n"
         "  1    verify or diff found something\n"
         "  2    the command line makes no sense\n"
         "  3    the source is unreadable or malformed\n"
         "  4    the destination could not be written\n"
         "  5    refused: exists, would not fit, would lose something\n"
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
      "'dcp-convert --version' prints the version. '--' ends the options.\n"
      "'dcp-convert man | man -l -' shows the manual page, and\n"
      "'source <(dcp-convert completion bash)' lets a shell complete words; "
      "fish\nand zsh are known too.\n\nExit codes:\n",
      ExitCodeHelp());
  return text;
}

std::string VerbHelp(Verb verb) {
  const VerbRow& row = RowOf(verb);
  std::string text = absl::StrCat(
      "Usage: dcp-convert ", row.name, " [OPTION]... ", row.operands, "\n\n",
      row.description,
      "\nOptions ('...': may be given again and adds to the first):\n");
  for (const OptionRow& option : AllOptions()) {
    if (option.verbs & VerbBit(verb)) AppendOption(option, text);
  }
  absl::StrAppend(&text, "\nExamples:\n");
  AppendIndented(row.examples, text);
  absl::StrAppend(&text, "\nExit codes:\n", ExitCodeHelp());
  return text;
}

std::string VersionText() {
  return absl::StrCat("dcp-convert ", kVersion, "\n");
}

}  // namespace dcp::tools
