// SPDX-License-Identifier: Apache-2.0
// Writes each shell's script from the tables.
// Tested by tests/tools/dcp_convert/options/help_test.cc.
#include "tools/dcp_convert/options/completion.h"

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dcp/maps/builtin_mappings.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

constexpr std::array<absl::string_view, 3> kShells = {"bash", "fish", "zsh"};

std::vector<absl::string_view> VerbNames() {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : AllVerbs()) names.emplace_back(row.name);
  names.emplace_back("help");
  return names;
}

// One verb's options: "--chunks --depth --json".
std::string OptionWords(const VerbRow& verb) {
  std::vector<std::string> words;
  for (const VerbOption& row : Tool().options) {
    if (row.verbs & verb.bit) words.push_back(absl::StrCat("--", row.name));
  }
  return absl::StrJoin(words, " ");
}

// A line for each option with a value, in a case statement that completes
// values.
std::string ValueCases() {
  std::string text;
  for (const VerbOption& row : Tool().options) {
    if (row.value == nullptr) continue;
    const std::string complete =
        row.choices != nullptr ? absl::StrCat("COMPREPLY=($(compgen -W '",
                                              row.choices, "' -- \"$word\"))")
        : absl::string_view(row.value) == "FILE"
            ? std::string("COMPREPLY=($(compgen -f -- \"$word\"))")
            : std::string("COMPREPLY=()");
    absl::StrAppend(&text, "    --", row.name, ") ", complete, "; return ;;\n");
  }
  return text;
}

// One verb's actions: "list show check test".
std::string ActionWords(const VerbRow& verb) {
  std::vector<absl::string_view> names;
  for (const Action& action : VerbActions(verb))
    names.emplace_back(action.name);
  return absl::StrJoin(names, " ");
}

// The verb's actions that take a mapping family, perhaps instead of a file.
std::vector<absl::string_view> ActionsWithFamily(const VerbRow& verb) {
  std::vector<absl::string_view> names;
  for (const Action& action : VerbActions(verb)) {
    const absl::string_view operand =
        action.operand == nullptr ? "" : action.operand;
    if (operand == "FAMILY" || operand == "FILE") {
      names.emplace_back(action.name);
    }
  }
  return names;
}

// For each verb with actions, lines in a case statement: one completes the
// actions, the others the mapping families after an action.
std::string ActionCases() {
  std::string text;
  for (const VerbRow& row : AllVerbs()) {
    if (VerbActions(row).empty()) continue;
    absl::StrAppend(&text, "    ", row.name, ",2,*) words='", ActionWords(row),
                    "' ;;\n");
    for (const absl::string_view action : ActionsWithFamily(row)) {
      absl::StrAppend(&text, "    ", row.name, ",3,", action, ") words='",
                      absl::StrJoin(BuiltinMappings(), " "), "' ;;\n");
    }
  }
  return text;
}

std::string BashScript() {
  std::string verbs;
  for (const VerbRow& row : AllVerbs()) {
    absl::StrAppend(&verbs, "    ", row.name, ") options='", OptionWords(row),
                    "' ;;\n");
  }
  return absl::StrCat(
      "# Completion of dcp-convert for bash:\n"
      "#   source <(dcp-convert completion bash)\n"
      "_dcp_convert() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} options= words=\n"
      "  local before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '",
      absl::StrJoin(VerbNames(), " "),
      " completion man --help --version' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $before in\n",
      ValueCases(),
      "  esac\n"
      "  case ${COMP_WORDS[1]} in\n",
      verbs, "    help) COMPREPLY=($(compgen -W '",
      absl::StrJoin(VerbNames(), " "),
      "' -- \"$word\")); return ;;\n"
      "    completion) COMPREPLY=($(compgen -W '",
      absl::StrJoin(kShells, " "),
      "' -- \"$word\")); return ;;\n"
      "  esac\n"
      "  case ${COMP_WORDS[1]},$COMP_CWORD,$before in\n",
      ActionCases(),
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
      "  elif [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _dcp_convert dcp-convert\n");
}

std::string ZshScript() {
  return absl::StrCat(
      "# Completion of dcp-convert for zsh:\n"
      "#   source <(dcp-convert completion zsh)\n"
      "autoload -U +X compinit && compinit\n"
      "autoload -U +X bashcompinit && bashcompinit\n",
      BashScript());
}

// Text for a single-quoted string in fish.
std::string FishQuoted(absl::string_view text) {
  return absl::StrCat(
      "'",
      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}}),
      "'");
}

std::string FishScript() {
  std::string text =
      "# Completion of dcp-convert for fish:\n"
      "#   dcp-convert completion fish | source\n";
  const std::string first = "complete -c dcp-convert -n __fish_use_subcommand ";
  for (const VerbRow& row : AllVerbs()) {
    absl::StrAppend(&text, first, "-f -a ", row.name, " -d ",
                    FishQuoted(row.summary), "\n");
    if (VerbActions(row).empty()) continue;
    const std::string actions = ActionWords(row);
    const std::string behind = absl::StrCat(
        "complete -c dcp-convert -n '__fish_seen_subcommand_from ", row.name);
    absl::StrAppend(&text, behind, "; and not __fish_seen_subcommand_from ",
                    actions, "' -f -a ", FishQuoted(actions), "\n");
    const std::vector<absl::string_view> with_family = ActionsWithFamily(row);
    if (with_family.empty()) continue;
    absl::StrAppend(&text, behind, "; and __fish_seen_subcommand_from ",
                    absl::StrJoin(with_family, " "), "' -a ",
                    FishQuoted(absl::StrJoin(BuiltinMappings(), " ")), "\n");
  }
  for (const VerbOption& row : Tool().options) {
    absl::StrAppend(
        &text, "complete -c dcp-convert -n '__fish_seen_subcommand_from ",
        absl::StrJoin(VerbsThatTake(Tool(), row), " "), "' -l ", row.name);
    if (row.choices != nullptr) {
      absl::StrAppend(&text, " -x -a ", FishQuoted(row.choices));
    } else if (row.value != nullptr) {
      const bool file = absl::string_view(row.value) == "FILE";
      absl::StrAppend(&text, file ? " -r" : " -x");
    }
    absl::StrAppend(&text, " -d ", FishQuoted(row.help), "\n");
  }
  return text;
}

}  // namespace

absl::Span<const absl::string_view> CompletionShells() { return kShells; }

std::string CompletionScript(absl::string_view shell) {
  if (shell == "fish") return FishScript();
  return shell == "zsh" ? ZshScript() : BashScript();
}

}  // namespace dcp::tools
