// SPDX-License-Identifier: Apache-2.0

#include "tools/fsdp_config/commands.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "config/dialect_table.h"
#include "config/explain/explain.h"
#include "config/explain/mesh_plan.h"
#include "config/read_config.h"
#include "config/to_fsdp2/to_fsdp2.h"
#include "config/write_config.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/base/version.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/dtype.h"
#include "third_party/licenses/licenses.h"
#include "tools/fsdp_config/command_line.h"
#include "tools/fsdp_config/command_line_parser.h"
#include "tools/fsdp_config/questions.h"
#include "tools/fsdp_config/render.h"

namespace fsdp::tools {
namespace {

using dcp::tools::Console;
using dcp::tools::ExitCode;

// One machine with eight GPUs, the usual size.
constexpr int64_t kDefaultRanks = 8;
// No machine has more; a search for ranks that fit ends there.
constexpr int64_t kMostRanks = int64_t{1} << 16;

struct Context {
  const CommandLine& line;
  const std::vector<std::string>& variables;
  Console console;
  dcp::FileSystem& fs;
  Terminal terminal;
};

ExitCode Fail(const Context& context, const absl::Status& status,
              ExitCode code) {
  context.console.err << "fsdp-config: " << std::string(status.message())
                      << std::endl;
  return code;
}

// A config, and the texts that the findings refer to.
struct Input {
  ReadConfig read;
  Sources sources;
};

absl::StatusOr<std::string> ReadText(const std::string& file) {
  return config_text(file == "-" ? "/dev/stdin" : file);
}

std::string DisplayName(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

absl::StatusOr<Input> Read(const Context& context, const std::string& file) {
  DCP_ASSIGN_OR_RETURN(std::string text, ReadText(file));
  Input input;
  const std::string name = DisplayName(file);
  if (file == "-") {
    input.read = read_config_text(name, text);
  } else {
    DCP_ASSIGN_OR_RETURN(input.read, read_config_file(file));
  }
  input.sources[name] = std::move(text);
  if (context.line.environment) {
    read_environment(context.variables, input.read.config, input.read.findings);
  }
  return input;
}

// Whether the findings end the command: any problem, or with --strict any
// finding.
bool AreTooMany(const Context& context, const Findings& findings) {
  return findings.has_problems() ||
         (context.line.strict && !findings.list().empty());
}

// Ends a verb that has no result.
ExitCode Refuse(const Context& context, std::optional<ConfigDialect> dialect,
                const Findings& findings, const Sources& sources) {
  if (context.line.json) {
    context.console.out << FindingsJson(dialect, findings);
  } else {
    context.console.err << RenderFindings(findings, sources,
                                          context.terminal.err_has_colors);
  }
  return dcp::tools::kExitFound;
}

// A temporary name for a file until it is complete. It is in the same
// directory, because a rename does not cross file systems. No other run uses
// the same name, so the leftovers of a killed run are not in the way.
std::string TemporaryName(const std::string& path) {
  const size_t base = path.rfind('/') + 1;  // 0 without a directory
  return absl::StrCat(path.substr(0, base), ".", path.substr(base), ".",
                      dcp::NewSaveId(), ".tmp");
}

// Writes the file completely or not at all, and durably; replaces a file only
// with `overwrite`.
absl::Status WriteFile(dcp::FileSystem& fs, const std::string& path,
                       absl::string_view text, bool overwrite) {
  if (!overwrite && fs.Stat(path).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists; --overwrite replaces it"));
  }
  const std::string temporary = TemporaryName(path);
  DCP_ASSIGN_OR_RETURN(
      dcp::File file, fs.Create(temporary, text.size(), dcp::DirectMode::kOff));
  absl::Status status = fs.Write(file, 0, dcp::AsBytes(text));
  if (status.ok()) status = fs.Sync(file);
  const absl::Status closed = fs.Close(std::move(file));
  if (status.ok()) status = closed;
  if (status.ok()) {
    status = overwrite ? fs.Rename(temporary, path)
                       : fs.RenameExclusive(temporary, path);
  }
  if (!status.ok()) {
    // The first error already names the file if it cannot be removed.
    fs.Remove(temporary).IgnoreError();
    return status;
  }
  const size_t slash = path.rfind('/');
  return fs.SyncDirectory(slash == std::string::npos ? "."
                          : slash == 0               ? "/"
                                                     : path.substr(0, slash));
}

// A new config, and the texts that the findings refer to.
struct Made {
  std::optional<ConfigDialect> dialect;
  std::string text;
  const Findings& findings;
  Sources sources;
};

// Writes to the file, or to standard output.
ExitCode Deliver(const Context& context, const Made& made) {
  const CommandLine& line = context.line;
  const std::string path =
      line.output_file.empty() && line.overwrite ? line.file : line.output_file;
  if (!path.empty()) {
    const absl::Status written =
        WriteFile(context.fs, path, made.text, line.overwrite);
    if (!written.ok()) {
      return Fail(context, written,
                  absl::IsAlreadyExists(written)
                      ? dcp::tools::kExitRefused
                      : dcp::tools::kExitDestination);
    }
  }
  if (line.json) {
    context.console.out << WrittenJson(made.dialect, made.findings, made.text,
                                       path);
    return dcp::tools::kExitDone;
  }
  context.console.err << RenderFindings(made.findings, made.sources,
                                        context.terminal.err_has_colors);
  if (path.empty()) {
    context.console.out << made.text;
  } else {
    context.console.err << "wrote " << path << ": "
                        << RenderCounts(made.findings) << std::endl;
  }
  return dcp::tools::kExitDone;
}

int64_t LocalWorldSize(const CommandLine& line, int64_t ranks) {
  return line.local_world_size > 0 ? line.local_world_size
                                   : std::min(ranks, kDefaultRanks);
}

// Adds a problem if the degrees do not fit the number of ranks on the command
// line, or in the file.
void CheckRanks(const CommandLine& line, ReadConfig& read) {
  const Setting<int64_t>& written_for = read.config.mesh.num_processes;
  const int64_t ranks = line.world_size > 0 ? line.world_size : *written_for;
  if (ranks <= 0 || read.findings.has_problems()) return;
  const absl::Status planned =
      plan_mesh(read.config.mesh, ranks, LocalWorldSize(line, ranks)).status();
  if (planned.ok()) return;
  if (line.world_size > 0) {
    read.findings.Problem({}, std::string(planned.message()));
    return;
  }
  read.findings.Problem(
      written_for.place().value_or(SourceLocation{}),
      absl::StrCat("is ", ranks,
                   ", which does not fit the degrees: ", planned.message()));
}

ExitCode CheckOne(const Context& context, const std::string& file) {
  absl::StatusOr<Input> input = Read(context, file);
  if (!input.ok()) {
    return Fail(context, input.status(), dcp::tools::kExitSource);
  }
  ReadConfig& read = input->read;
  CheckRanks(context.line, read);
  if (context.line.json) {
    context.console.out << FindingsJson(read.dialect, read.findings);
  } else {
    const std::string dialect =
        read.dialect.has_value()
            ? absl::StrCat(" (", dialect_name(*read.dialect), ")")
            : "";
    context.console.out << RenderFindings(read.findings, input->sources,
                                          context.terminal.out_has_colors)
                        << DisplayName(file) << dialect << ": "
                        << RenderCounts(read.findings) << "\n";
  }
  return AreTooMany(context, read.findings) ? dcp::tools::kExitFound
                                            : dcp::tools::kExitDone;
}

// Checks all files, whatever each result is; returns the worst code.
ExitCode RunCheck(const Context& context) {
  ExitCode worst = dcp::tools::kExitDone;
  for (const std::string& file : context.line.files) {
    worst = std::max(worst, CheckOne(context, file));
  }
  return worst;
}

// The parameters in a checkpoint's index: the model's floating-point tensors.
// Prints the checkpoint's losses.
absl::StatusOr<std::vector<ParameterShape>> ReadShapes(
    const Context& context, const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<dcp::Checkpoint> checkpoint,
                       dcp::Checkpoint::Open(context.fs, path, {}));
  for (const dcp::SourceLoss& loss : checkpoint->losses()) {
    context.console.err << "warning: " << path << ": " << loss.text << "\n";
  }
  dcp::SelectionOptions model;
  model.parts = {dcp::StatePart::kModel};
  DCP_ASSIGN_OR_RETURN(const std::vector<dcp::SelectedEntry> selected,
                       dcp::Select(checkpoint->entries(), model));
  std::vector<ParameterShape> shapes;
  for (const dcp::SelectedEntry& choice : selected) {
    const dcp::TensorEntry* const tensor =
        checkpoint->entries()[choice.entry].tensor();
    if (tensor == nullptr || !dcp::IsFloatingPoint(tensor->dtype)) continue;
    ParameterShape& shape = shapes.emplace_back();
    shape.name = choice.fqn;
    for (const auto size : tensor->shape) {
      shape.sizes.push_back(static_cast<int64_t>(size));
    }
  }
  if (shapes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " contains no parameters of a model"));
  }
  return shapes;
}

// How many ranks to assume when a config does not say: the smallest number, at
// least one machine, that the degrees divide; or exactly their product.
int64_t RanksForDegrees(const MeshConfig& mesh) {
  int64_t unit = 1;
  for (const int64_t degree :
       {*mesh.pipeline_parallel_degree, *mesh.data_parallel_replicate_degree,
        *mesh.data_parallel_shard_degree, *mesh.context_parallel_degree,
        *mesh.tensor_parallel_degree}) {
    if (degree > kMostRanks / unit) return kDefaultRanks;
    if (degree > 1) unit *= degree;
  }
  const bool has_rest = *mesh.data_parallel_shard_degree < 1 ||
                        *mesh.data_parallel_replicate_degree < 1;
  if (!has_rest) return unit;
  for (int64_t ranks = unit; ranks <= kMostRanks; ranks += unit) {
    if (ranks >= kDefaultRanks && plan_mesh(mesh, ranks, kDefaultRanks).ok()) {
      return ranks;
    }
  }
  return kDefaultRanks;
}

ExplainOptions MakeExplainOptions(const CommandLine& line,
                                  const MeshConfig& mesh) {
  const int64_t written_for = *mesh.num_processes;
  ExplainOptions options = {.local_batch_size = line.local_batch_size,
                            .seq_len = line.seq_len};
  options.world_size = line.world_size > 0 ? line.world_size
                       : written_for > 0   ? written_for
                                           : RanksForDegrees(mesh);
  options.local_world_size = LocalWorldSize(line, options.world_size);
  return options;
}

ExitCode RunExplain(const Context& context) {
  const CommandLine& line = context.line;
  absl::StatusOr<Input> input = Read(context, line.file);
  if (!input.ok()) {
    return Fail(context, input.status(), dcp::tools::kExitSource);
  }
  ReadConfig& read = input->read;
  if (read.findings.has_problems()) {
    return Refuse(context, read.dialect, read.findings, input->sources);
  }
  ExplainOptions options = MakeExplainOptions(line, read.config.mesh);
  if (!line.model.empty()) {
    absl::StatusOr<std::vector<ParameterShape>> shapes =
        ReadShapes(context, line.model);
    if (!shapes.ok()) {
      return Fail(context, shapes.status(), dcp::tools::kExitSource);
    }
    options.parameters = *std::move(shapes);
  }
  const absl::StatusOr<Explanation> explanation = explain(read.config, options);
  if (!explanation.ok()) {
    read.findings.Problem({}, std::string(explanation.status().message()));
    return Refuse(context, read.dialect, read.findings, input->sources);
  }
  if (line.json) {
    context.console.out << ExplanationJson(*read.dialect, read.config,
                                           *explanation, read.findings);
  } else {
    context.console.err << RenderFindings(read.findings, input->sources,
                                          context.terminal.err_has_colors);
    context.console.out << RenderExplanation(read.config, *explanation);
  }
  return AreTooMany(context, read.findings) ? dcp::tools::kExitFound
                                            : dcp::tools::kExitDone;
}

ExitCode RunToFsdp2(const Context& context) {
  const std::string& file = context.line.file;
  absl::StatusOr<std::string> text = ReadText(file);
  if (!text.ok()) {
    return Fail(context, text.status(), dcp::tools::kExitSource);
  }
  const ToFsdp2 result = to_fsdp2(DisplayName(file), *text);
  const std::optional<ConfigDialect> dialect =
      read_config_text(DisplayName(file), *text).dialect;
  const Sources sources = {{DisplayName(file), *std::move(text)}};
  if (AreTooMany(context, result.findings)) {
    return Refuse(context, dialect, result.findings, sources);
  }
  return Deliver(context, {.dialect = dialect,
                           .text = result.text,
                           .findings = result.findings,
                           .sources = sources});
}

// Turns degrees that follow from the number of ranks on the command line into
// numbers. Degrees that do not fit it are a problem.
void CountRanks(const CommandLine& line, ReadConfig& read) {
  if (line.world_size == 0 || read.findings.has_problems()) return;
  MeshConfig& mesh = read.config.mesh;
  const absl::StatusOr<MeshPlan> plan =
      plan_mesh(mesh, line.world_size, LocalWorldSize(line, line.world_size));
  if (!plan.ok()) {
    read.findings.Problem({}, std::string(plan.status().message()));
    return;
  }
  mesh.num_processes = line.world_size;
  if (*mesh.data_parallel_shard_degree == kShardWithinNode) {
    mesh.data_parallel_shard_degree = plan->shard;
    mesh.data_parallel_replicate_degree = plan->replicate;
  }
}

ExitCode RunConvert(const Context& context) {
  absl::StatusOr<Input> input = Read(context, context.line.file);
  if (!input.ok()) {
    return Fail(context, input.status(), dcp::tools::kExitSource);
  }
  ReadConfig& read = input->read;
  CountRanks(context.line, read);
  std::string text;
  if (!read.findings.has_problems()) {
    text = write_config(read.config, *context.line.to, read.findings);
  }
  if (AreTooMany(context, read.findings)) {
    return Refuse(context, read.dialect, read.findings, input->sources);
  }
  return Deliver(context, {.dialect = read.dialect,
                           .text = std::move(text),
                           .findings = read.findings,
                           .sources = input->sources});
}

ExitCode RunInit(const Context& context) {
  std::istringstream nothing;
  std::istream& in =
      context.terminal.in == nullptr ? nothing : *context.terminal.in;
  const absl::StatusOr<Answers> answers =
      AskForConfig(context.line.to, in, context.console.err);
  if (!answers.ok()) {
    return Fail(context, answers.status(), dcp::tools::kExitUsage);
  }
  Findings findings;
  const std::string text =
      write_config(answers->config, answers->dialect, findings);
  if (findings.has_problems()) {
    return Refuse(context, answers->dialect, findings, {});
  }
  return Deliver(context, {.dialect = answers->dialect,
                           .text = text,
                           .findings = findings,
                           .sources = {}});
}

}  // namespace

ExitCode RunCommand(absl::Span<const std::string> args,
                    const std::vector<std::string>& variables, Console console,
                    dcp::FileSystem& fs, Terminal terminal) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(args);
  if (!line.ok()) {
    console.err << "fsdp-config: " << std::string(line.status().message())
                << std::endl;
    return dcp::tools::kExitUsage;
  }
  if (line->action == CommandLine::Action::kVersion) {
    console.out << "fsdp-config " << dcp::kVersion << "\n";
    return dcp::tools::kExitDone;
  }
  if (line->action == CommandLine::Action::kLicenses) {
    console.out << dcp::LicensesText();
    return dcp::tools::kExitDone;
  }
  if (line->action == CommandLine::Action::kHelp) {
    console.out << (line->verb.has_value() ? VerbHelp(*line->verb)
                                           : GeneralHelp());
    return dcp::tools::kExitDone;
  }
  const Context context = {*line, variables, console, fs, terminal};
  switch (*line->verb) {
    case Verb::kCheck:
      return RunCheck(context);
    case Verb::kExplain:
      return RunExplain(context);
    case Verb::kToFsdp2:
      return RunToFsdp2(context);
    case Verb::kConvert:
      return RunConvert(context);
    case Verb::kInit:
      return RunInit(context);
  }
  return dcp::tools::kExitUsage;
}

}  // namespace fsdp::tools
