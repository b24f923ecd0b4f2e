#include "tools/fsdp_config/commands.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/config/explain.h"
#include "fsdp/config/read_config.h"
#include "fsdp/config/to_fsdp2.h"
#include "fsdp/config/write_config.h"
#include "tools/fsdp_config/command_line.h"
#include "tools/fsdp_config/render.h"
#include "tools/version.h"

namespace fsdp::tools {
namespace {

using dcp::tools::Console;
using dcp::tools::ExitCode;

// Of a machine of eight GPUs, as most have.
constexpr int64_t kDefaultRanks = 8;

struct Context {
  const CommandLine& line;
  const std::vector<std::string>& variables;
  Console console;
  dcp::FileSystem& fs;
};

ExitCode Fail(const Context& context, const absl::Status& status,
              ExitCode code) {
  context.console.err << "fsdp-config: " << std::string(status.message())
                      << std::endl;
  return code;
}

absl::StatusOr<ReadConfig> Read(const Context& context) {
  DCP_ASSIGN_OR_RETURN(ReadConfig read, read_config_file(context.line.file));
  if (context.line.environment) {
    read_environment(context.variables, read.config, read.findings);
  }
  return read;
}

// Where a file is written before it takes its name; beside it, for a rename
// does not cross file systems.
std::string TemporaryName(const std::string& path) {
  return absl::StrCat(path, ".tmp");
}

// Whole or not at all, and durable; another file only with `overwrite`.
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
    // What cannot be removed either is named by the first error.
    fs.Remove(temporary).IgnoreError();
    return status;
  }
  const size_t slash = path.rfind('/');
  return fs.SyncDirectory(slash == std::string::npos ? "."
                          : slash == 0               ? "/"
                                                     : path.substr(0, slash));
}

// To the file, or to standard output.
ExitCode Deliver(const Context& context, absl::string_view text,
                 const Findings& findings) {
  const CommandLine& line = context.line;
  context.console.err << RenderFindings(findings);
  const std::string path =
      line.output_file.empty() && line.overwrite ? line.file : line.output_file;
  if (path.empty()) {
    context.console.out << std::string(text);
    return dcp::tools::kExitDone;
  }
  const absl::Status written =
      WriteFile(context.fs, path, text, line.overwrite);
  if (absl::IsAlreadyExists(written)) {
    return Fail(context, written, dcp::tools::kExitRefused);
  }
  if (!written.ok()) {
    return Fail(context, written, dcp::tools::kExitDestination);
  }
  context.console.err << "wrote " << path << ": " << RenderCounts(findings)
                      << std::endl;
  return dcp::tools::kExitDone;
}

ExitCode RunCheck(const Context& context) {
  const absl::StatusOr<ReadConfig> read = Read(context);
  if (!read.ok()) {
    return Fail(context, read.status(), dcp::tools::kExitSource);
  }
  const Findings& findings = read->findings;
  if (context.line.json) {
    context.console.out << FindingsJson(read->dialect, findings);
  } else {
    const std::string dialect =
        read->dialect.has_value()
            ? absl::StrCat(" (", name_of(*read->dialect), ")")
            : "";
    context.console.out << RenderFindings(findings) << context.line.file
                        << dialect << ": " << RenderCounts(findings) << "\n";
  }
  return findings.has_problems() ? dcp::tools::kExitFound
                                 : dcp::tools::kExitDone;
}

// Parameters by the index of a checkpoint: what is floating and no optimizer's.
// Of a training step they are below "model.".
absl::StatusOr<std::vector<ParameterShape>> ReadShapes(
    dcp::FileSystem& fs, const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<dcp::Checkpoint> checkpoint,
                       dcp::Checkpoint::Open(fs, path, {}));
  const auto is_optimizer = [](const dcp::CheckpointEntry& entry) {
    return absl::StartsWith(entry.fqn, "optim");
  };
  const bool is_step = std::any_of(checkpoint->entries().begin(),
                                   checkpoint->entries().end(), is_optimizer);
  std::vector<ParameterShape> shapes;
  for (const dcp::CheckpointEntry& entry : checkpoint->entries()) {
    const dcp::TensorEntry* tensor = entry.tensor();
    if (tensor == nullptr || !dcp::IsFloatingPoint(tensor->dtype)) continue;
    absl::string_view name = entry.fqn;
    if (is_step && !absl::ConsumePrefix(&name, "model.")) continue;
    ParameterShape& shape = shapes.emplace_back();
    shape.name = std::string(name);
    for (const auto size : tensor->shape) {
      shape.sizes.push_back(static_cast<int64_t>(size));
    }
  }
  if (shapes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no parameters of a model"));
  }
  return shapes;
}

ExitCode RunExplain(const Context& context) {
  const CommandLine& line = context.line;
  const absl::StatusOr<ReadConfig> read = Read(context);
  if (!read.ok()) {
    return Fail(context, read.status(), dcp::tools::kExitSource);
  }
  context.console.err << RenderFindings(read->findings);
  if (read->findings.has_problems()) return dcp::tools::kExitFound;
  ExplainOptions options = {.local_batch_size = line.local_batch_size,
                            .seq_len = line.seq_len};
  const int64_t written_for = *read->config.mesh.num_processes;
  options.world_size = line.world_size > 0 ? line.world_size
                       : written_for > 0   ? written_for
                                           : kDefaultRanks;
  options.local_world_size = line.local_world_size > 0
                                 ? line.local_world_size
                                 : std::min(options.world_size, kDefaultRanks);
  if (!line.model.empty()) {
    absl::StatusOr<std::vector<ParameterShape>> shapes =
        ReadShapes(context.fs, line.model);
    if (!shapes.ok()) {
      return Fail(context, shapes.status(), dcp::tools::kExitSource);
    }
    options.parameters = *std::move(shapes);
  }
  const absl::StatusOr<Explanation> explanation =
      explain(read->config, options);
  if (!explanation.ok()) {
    return Fail(context, explanation.status(), dcp::tools::kExitFound);
  }
  context.console.out << (line.json
                              ? ExplanationJson(*read->dialect, read->config,
                                                *explanation)
                              : RenderExplanation(read->config, *explanation));
  return dcp::tools::kExitDone;
}

ExitCode RunToFsdp2(const Context& context) {
  const absl::StatusOr<std::string> text = config_text(context.line.file);
  if (!text.ok()) {
    return Fail(context, text.status(), dcp::tools::kExitSource);
  }
  const ToFsdp2 result = to_fsdp2(context.line.file, *text);
  if (result.findings.has_problems()) {
    context.console.err << RenderFindings(result.findings);
    return dcp::tools::kExitFound;
  }
  return Deliver(context, result.text, result.findings);
}

ExitCode RunConvert(const Context& context) {
  absl::StatusOr<ReadConfig> read = Read(context);
  if (!read.ok()) {
    return Fail(context, read.status(), dcp::tools::kExitSource);
  }
  if (read->findings.has_problems()) {
    context.console.err << RenderFindings(read->findings);
    return dcp::tools::kExitFound;
  }
  const std::string text =
      write_config(read->config, *context.line.to, read->findings);
  return Deliver(context, text, read->findings);
}

}  // namespace

ExitCode RunCommand(absl::Span<const std::string> args,
                    const std::vector<std::string>& variables, Console console,
                    dcp::FileSystem& fs) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(args);
  if (!line.ok()) {
    console.err << "fsdp-config: " << std::string(line.status().message())
                << std::endl;
    return dcp::tools::kExitUsage;
  }
  if (line->action == CommandLine::Action::kVersion) {
    console.out << "fsdp-config " << dcp::tools::kVersion << "\n";
    return dcp::tools::kExitDone;
  }
  if (line->action == CommandLine::Action::kHelp) {
    console.out << (line->verb.has_value() ? VerbHelp(*line->verb)
                                           : GeneralHelp());
    return dcp::tools::kExitDone;
  }
  const Context context = {*line, variables, console, fs};
  switch (*line->verb) {
    case Verb::kCheck:
      return RunCheck(context);
    case Verb::kExplain:
      return RunExplain(context);
    case Verb::kToFsdp2:
      return RunToFsdp2(context);
    case Verb::kConvert:
      return RunConvert(context);
  }
  return dcp::tools::kExitUsage;
}

}  // namespace fsdp::tools
