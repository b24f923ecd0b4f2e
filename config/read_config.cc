// SPDX-License-Identifier: Apache-2.0

#include "config/read_config.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "config/dialect_of.h"
#include "config/dialect_table.h"
#include "config/dialects/fields/fsdp_words.h"
#include "config/dialects/fields/known_programs.h"
#include "config/document/alternatives.h"
#include "config/document/document.h"
#include "config/document/printed_config.h"
#include "config/document/python_dict.h"
#include "dcp/base/log.h"
#include "document/document.h"

namespace fsdp {
namespace {

using config::Node;
using config::ParseDocument;
using config::Syntax;

Node ParseText(absl::string_view name, absl::string_view text,
               Findings& findings) {
  const std::string printed = config::ExtractPrintedConfig(text);
  if (!printed.empty()) {
    return ParseDocument(name, printed, Syntax::kJson, findings);
  }
  if (absl::EndsWithIgnoreCase(name, ".py")) {
    return ParseDocument(name, config::PythonDictAsYaml(text), Syntax::kYaml,
                         findings);
  }
  return ParseDocument(name, text, config::DetectSyntax(name, text), findings);
}

// "A, B or C".
std::string ProgramsText() {
  std::vector<absl::string_view> programs;
  for (const ConfigDialect dialect : all_dialects()) {
    programs.push_back(dialect_program(dialect));
  }
  return config::Alternatives(programs);
}

// Says why a tree is in no dialect.
void SayUnknown(const Node& root, Findings& findings) {
  const config::KnownProgram known = config::FindKnownProgram(root);
  if (known.is_refused()) {
    findings.Problem(root.place,
                     absl::StrCat("is a file of ", known.name,
                                  ", not a config of ", ProgramsText()));
    return;
  }
  findings.Problem(
      root.place,
      absl::StrCat(
          "is not a config of ", ProgramsText(),
          ": it has no key that only one of them has, such as distributed_type "
          "or parallelism.tensor_parallel_degree, nor two that are typical of "
          "one, such as fsdp and per_device_train_batch_size"));
}

// Returns another file's text. A path in a config is relative to the folder in
// which the program is started.
using ReadText =
    std::function<absl::StatusOr<std::string>(const std::string& path)>;

// Replaces `fsdp_config: "fsdp.json"` by the options in that file.
void FollowOptionsFile(const ReadText& read_text, Node& root,
                       Findings& findings) {
  for (auto& [key, node] : root.entries) {
    if (key != "fsdp_config" || node.kind != Node::Kind::kString ||
        node.text.empty()) {
      continue;
    }
    const absl::StatusOr<std::string> text = read_text(node.text);
    if (!text.ok()) {
      findings.Problem(
          node.place, absl::StrCat("names another file, which cannot be read: ",
                                   text.status().message()));
      node = Node();
      return;
    }
    node = ParseText(node.text, *text, findings);
  }
}

ReadConfig Read(absl::string_view name, absl::string_view text,
                const ReadText& read_text) {
  ReadConfig read;
  if (config::IsTorchTitanProgram(text)) {
    read.findings.Problem(
        {.file = std::string(name)},
        "is a program that makes TorchTitan's config (0.3 and later), and no "
        "Python runs here; start it with --debug.print_config, or "
        "--debug.save_config_file config.json, and read that output");
    return read;
  }
  Node document = ParseText(name, text, read.findings);
  const Node& root = config::ConfigRoot(document);
  const bool is_broken = root.entries.empty() && read.findings.has_problems();
  if (is_broken) return read;
  read.dialect = config::DetectDialect(root);
  if (!read.dialect.has_value()) {
    SayUnknown(root, read.findings);
    return read;
  }
  if (*read.dialect == ConfigDialect::kTransformers && read_text != nullptr &&
      config::AsksForFsdp(document.Find("fsdp"))) {
    FollowOptionsFile(read_text, document, read.findings);
  }
  config::GetRow(*read.dialect).read(root, read.config, read.findings);
  return read;
}

// Looks in this process's folder, then in the config's.
absl::StatusOr<std::string> TextNear(const std::string& config,
                                     const std::string& path) {
  absl::StatusOr<std::string> text = config_text(path);
  if (text.ok() || !absl::IsNotFound(text.status())) return text;
  const std::filesystem::path sibling =
      std::filesystem::path(config).parent_path() / path;
  return config_text(sibling.string());
}

}  // namespace

ReadConfig read_config_text(absl::string_view name, absl::string_view text) {
  return Read(name, text, nullptr);
}

absl::StatusOr<std::string> config_text(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (std::filesystem::is_directory(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(dcp::document::kMaxDocumentBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A read of fewer bytes than asked for sets the end bit and also the fail
  // bit.
  if (!file.is_open() || file.bad() || (!file.eof() && !file.good())) {
    return absl::PermissionDeniedError(absl::StrCat("cannot read ", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > dcp::document::kMaxDocumentBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has more than ", dcp::document::kMaxDocumentBytes, " bytes"));
  }
  return text;
}

absl::StatusOr<ReadConfig> read_config_file(const std::string& path) {
  const absl::StatusOr<std::string> text = config_text(path);
  if (!text.ok()) return text.status();
  return Read(path, *text, [&path](const std::string& other) {
    return TextNear(path, other);
  });
}

namespace {

// Logs only on the first rank, or in a process without ranks: once per run.
void SayFindings(const Findings& findings) {
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && absl::string_view(rank) != "0") return;
  for (const Finding& finding : findings.list()) {
    DCP_LOG(kWarning) << "event=config " << to_string(finding);
  }
}

}  // namespace

absl::StatusOr<TrainConfig> load_config(const std::string& path) {
  absl::StatusOr<ReadConfig> read = read_config_file(path);
  if (!read.ok()) return read.status();
  if (read->dialect == ConfigDialect::kAccelerate ||
      read->dialect == ConfigDialect::kTransformers) {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      variables.emplace_back(*variable);
    }
    read_environment(variables, read->config, read->findings);
  }
  const absl::Status status = read->findings.ToStatus();
  if (!status.ok()) return status;
  SayFindings(read->findings);
  return std::move(read->config);
}

}  // namespace fsdp
