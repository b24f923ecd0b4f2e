// SPDX-License-Identifier: Apache-2.0
// The tables.
//
// Tested by tests/tools/fsdp_config/command_line_test.cc.
#include "tools/fsdp_config/option_table.h"

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/document/alternatives.h"
#include "config/write_config.h"
#include "tools/options/option_setters.h"

namespace fsdp::tools {
namespace {

using ::dcp::tools::IsNot;
using ::dcp::tools::OptionRow;
using ::dcp::tools::SetFlag;
using ::dcp::tools::SetPositive;
using ::dcp::tools::SetText;
using ::dcp::tools::VerbBit;
using ::dcp::tools::VerbRow;
using ::dcp::tools::VerbTool;

constexpr std::array<VerbRow, 5> kVerbs = {{
    {VerbBit(Verb::kCheck), "check", "FILE", "report all mistakes in a config",
     "Reads a training config of a program that 'fsdp-config --help' names, "
     "as\n"
     "YAML, JSON, TOML or a Python dict, and prints all mistakes in it: the\n"
     "line, the key, the value and the allowed values, and for an unknown key\n"
     "the nearest known one. Then it prints the options that have a different\n"
     "meaning here, and those that have no effect. The exit code is 1 if "
     "there\n"
     "are mistakes.\n",
     "fsdp-config check accelerate.yaml\n"
     "fsdp-config check --strict configs/*.yaml\n"
     "fsdp-config check fsdp.json --json | jq '.findings[].text'\n"},
    {VerbBit(Verb::kExplain), "explain", "FILE",
     "explain what a config will do",
     "Prints the mesh of ranks, the groups that are gathered and reduced\n"
     "together, ZeRO's stage, and the memory of one rank: parameters,\n"
     "gradients, optimizer state, parameters gathered at one time, and a "
     "bound\n"
     "for the activations. Groups and memory require a model: any checkpoint\n"
     "of it; only the checkpoint's index is read.\n",
     "fsdp-config explain llama3_8b.toml --world-size 64\n"
     "fsdp-config explain accelerate.yaml --world-size 16 \\\n"
     "  --model model.safetensors --local-batch-size 2 --seq-len 8192\n"},
    {VerbBit(Verb::kToFsdp2), "to-fsdp2", "FILE",
     "turn an FSDP1 config into an FSDP2 config",
     "Writes the same file for FSDP2: options are renamed, mapped or dropped,\n"
     "and each is named with the reason. Comments, order and all other keys\n"
     "stay as they were. A file for FSDP2 is not changed. The result goes to\n"
     "standard output, to --output-file, or with --overwrite alone into the\n"
     "file itself.\n",
     "fsdp-config to-fsdp2 accelerate.yaml | diff accelerate.yaml -\n"
     "fsdp-config to-fsdp2 accelerate.yaml --output-file accelerate2.yaml\n"
     "fsdp-config to-fsdp2 accelerate.yaml --overwrite\n"},
    {VerbBit(Verb::kConvert), "convert", "FILE",
     "write a config for another program",
     "Reads a config of any of these programs and writes a complete one for\n"
     "another, for FSDP2. Settings that the other program does not have are\n"
     "named; the rest means the same. A mesh that it cannot have is an error;\n"
     "--world-size turns degrees that follow from the number of ranks into\n"
     "numbers.\n",
     "fsdp-config convert accelerate.yaml --to torchtitan --world-size 16\n"
     "fsdp-config convert llama3.toml --to accelerate \\\n"
     "  --output-file accelerate.yaml\n"},
    {VerbBit(Verb::kInit), "init", "",
     "ask for the settings of a config and write it",
     "Asks questions like `accelerate config`, and writes a config for the\n"
     "program that --to names, or asks for the program too. Questions go to\n"
     "standard error, the config to standard output or to --output-file.\n",
     "fsdp-config init --output-file accelerate.yaml\n"
     "fsdp-config init --to torchtitan >llama3.toml\n"},
}};

constexpr uint32_t kAll = VerbBit(Verb::kCheck) | VerbBit(Verb::kExplain) |
                          VerbBit(Verb::kToFsdp2) | VerbBit(Verb::kConvert);
constexpr uint32_t kWrites =
    VerbBit(Verb::kToFsdp2) | VerbBit(Verb::kConvert) | VerbBit(Verb::kInit);
constexpr uint32_t kExplains = VerbBit(Verb::kExplain);
constexpr uint32_t kCountsRanks =
    kExplains | VerbBit(Verb::kCheck) | VerbBit(Verb::kConvert);

absl::Status AddFile(absl::string_view value, CommandLine& line) {
  if (value.empty()) return IsNot(value, "a name");
  line.files.emplace_back(value);
  line.file = line.files.front();
  return absl::OkStatus();
}

absl::Status SetTo(absl::string_view value, CommandLine& line) {
  line.to = dialect_named(value);
  if (line.to.has_value() && !can_write(*line.to)) {
    return absl::InvalidArgumentError(
        absl::StrCat("configs of ", dialect_program(*line.to),
                     " can be read, but not written"));
  }
  if (line.to.has_value()) return absl::OkStatus();
  return IsNot(value, config::Alternatives(written_dialects()));
}

constexpr OptionRow<CommandLine> kOptions[] = {
    {{"to", "DIALECT", VerbBit(Verb::kConvert) | VerbBit(Verb::kInit),
      "the program; 'fsdp-config --help' lists them"},
     SetTo},
    {{"output-file", "FILE", kWrites,
      "where to write; refused if the file exists"},
     SetText<&CommandLine::output_file>},
    {{"overwrite", nullptr, kWrites, "replace the file if it exists"},
     SetFlag<&CommandLine::overwrite>},
    {{"config-file", "FILE", kAll, "the FILE, as accelerate spells it"},
     AddFile},
    {{"strict", nullptr, kAll,
      "exit with 1 for changes and keys without effect too"},
     SetFlag<&CommandLine::strict>},
    {{"world-size", "N", kCountsRanks,
      "ranks in total; default: those the config was\nwritten for (explain: or "
      "the product\nof the degrees, at least 8 if that is no number)"},
     SetPositive<&CommandLine::world_size>},
    {{"local-world-size", "N", kCountsRanks,
      "ranks on one machine; default: at most 8"},
     SetPositive<&CommandLine::local_world_size>},
    {{"model", "PATH", kExplains,
      "a checkpoint of the model: safetensors, .pt, DCP"},
     SetText<&CommandLine::model>},
    {{"local-batch-size", "N", kExplains,
      "sequences for one rank; default: the config's, or 1"},
     SetPositive<&CommandLine::local_batch_size>},
    {{"seq-len", "N", kExplains,
      "tokens in a sequence; default: the config's, or 2048"},
     SetPositive<&CommandLine::seq_len>},
    {{"environment", nullptr, kAll,
      "FSDP_* and ACCELERATE_* variables override the file"},
     SetFlag<&CommandLine::environment>},
    {{"json", nullptr, kAll, "print one JSON object for each file, not text"},
     SetFlag<&CommandLine::json>},
    {{"help", nullptr, kAll | VerbBit(Verb::kInit), "print this text"},
     [](absl::string_view, CommandLine& line) {
       line.action = CommandLine::Action::kHelp;
       return absl::OkStatus();
     }},
};

}  // namespace

const VerbTool& Tool() {
  static const VerbTool kTool = {
      .name = "fsdp-config",
      .verbs = kVerbs,
      .options = dcp::tools::ToolOptions(AllOptions()),
      // accelerate spells its options with underscores.
      .syntax = {.underscores = true},
      .short_words_are_operands = true,
  };
  return kTool;
}

absl::Span<const OptionRow<CommandLine>> AllOptions() { return kOptions; }

const VerbRow& RowForVerb(Verb verb) {
  return kVerbs[static_cast<size_t>(verb)];
}

Verb VerbForRow(const VerbRow& row) {
  return static_cast<Verb>(&row - kVerbs.data());
}

}  // namespace fsdp::tools
