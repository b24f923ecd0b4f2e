// SPDX-License-Identifier: Apache-2.0
// A file is converted in these steps:
// 1. Read it, so that a file that cannot be trained is not converted either. A
//    file with version 2 may have strategies in place of true and false, which
//    step 3 replaces.
// 2. Find the options' map, and the map that contains it, in the text.
// 3. Keep, change or remove each option, by the table in fsdp1.h.
// 4. Write down values for which the two versions' defaults differ.
// 5. Read the result again; it has to mean the same training.
#include "config/to_fsdp2/to_fsdp2.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialect_table.h"
#include "config/dialects/fields/copies.h"
#include "config/document/python_dict.h"
#include "config/read_config.h"
#include "config/to_fsdp2/fsdp2_conversion.h"
#include "config/to_fsdp2/options_layout.h"

namespace fsdp {
namespace {

// Whether FSDP2 can express the mesh: it shards over all ranks, or over those
// of given degrees.
bool CanExpressMesh(absl::string_view name, const ReadConfig& read,
                    Findings& findings) {
  const MeshConfig& mesh = read.config.mesh;
  const bool is_of_version_2 = *read.config.sharding.fsdp_version == 2;
  if (is_of_version_2 && !config::AreCopies(mesh)) return true;
  const SourceLocation place = mesh.data_parallel_shard_degree.place().value_or(
      SourceLocation{.file = std::string(name)});
  if (*mesh.data_parallel_replicate_degree == kReplicateOverRest) {
    findings.Problem(place,
                     "shards nothing, which FSDP2 cannot express; write "
                     "FULL_SHARD or SHARD_GRAD_OP, or train without FSDP");
    return false;
  }
  if (*mesh.data_parallel_shard_degree == kShardWithinNode) {
    findings.Problem(
        place, read.dialect == ConfigDialect::kAccelerate
                   ? "needs num_machines and num_processes as well, because "
                     "FSDP2 requires numbers of ranks"
                   : "needs numbers of ranks that share and copy the model, "
                     "for FSDP2 does not ask which machine a rank is on");
    return false;
  }
  return true;
}

// Returns a version 2 file without the options that version 1 left behind.
ToFsdp2 MendFile(absl::string_view name, absl::string_view text,
                 absl::string_view layout, ReadConfig read) {
  ToFsdp2 result;
  result.text = std::string(text);
  std::optional<config::OptionsLayout> found =
      config::FindOptions(layout, *read.dialect);
  if (found.has_value() && found->options.has_value()) {
    Findings findings;
    const std::optional<std::string> mended =
        config::MendFsdp2({.name = name, .text = text, .as_yaml = layout},
                          *std::move(found), read, findings);
    if (!mended.has_value()) {
      result.findings = std::move(findings);
      return result;
    }
    if (*mended == text) findings = {};
    const ReadConfig again = read_config_text(name, *mended);
    if (!again.findings.has_problems() &&
        same_training(read.config, again.config)) {
      return {.text = *mended, .findings = std::move(findings)};
    }
  }
  if (read.findings.has_problems()) result.findings = std::move(read.findings);
  return result;
}

}  // namespace

ToFsdp2 to_fsdp2(absl::string_view name, absl::string_view text) {
  ToFsdp2 result;
  result.text = std::string(text);
  ReadConfig read = read_config_text(name, text);
  const bool is_version_2 =
      read.dialect.has_value() && *read.config.sharding.fsdp_version == 2;
  if (read.findings.has_problems() && !is_version_2) {
    result.findings = std::move(read.findings);
    return result;
  }
  if (read.dialect.has_value() && !config::HasFsdp1Options(*read.dialect)) {
    result.findings.Problem(
        {.file = std::string(name)},
        absl::StrCat("is a config of ", dialect_program(*read.dialect),
                     read.dialect == ConfigDialect::kVerl
                         ? "; write strategy: fsdp2 where it has fsdp"
                         : ", which has no FSDP1"));
    return result;
  }
  const std::string layout = absl::EndsWithIgnoreCase(name, ".py")
                                 ? config::PythonDictAsYaml(text)
                                 : std::string(text);
  if (layout.size() != text.size()) {
    result.findings.Problem({.file = std::string(name)},
                            "is Python that cannot be edited here; write the "
                            "dict as YAML");
    return result;
  }
  if (!read.findings.has_problems() &&
      !CanExpressMesh(name, read, result.findings)) {
    return result;
  }
  // Then only options left over from version 1 are edited; mostly there are
  // none.
  if (is_version_2) return MendFile(name, text, layout, std::move(read));
  std::optional<config::OptionsLayout> found =
      config::FindOptions(layout, *read.dialect);
  if (!found.has_value()) {
    result.findings.Problem(
        {.file = std::string(name)},
        "is laid out in a way that cannot be edited; write the options as "
        "lines, each with its key");
    return result;
  }
  const std::optional<std::string> converted =
      config::ConvertToFsdp2({.name = name, .text = text, .as_yaml = layout},
                             *std::move(found), read, result.findings);
  if (!converted.has_value()) return result;
  const ReadConfig again = read_config_text(name, *converted);
  if (again.findings.has_problems() ||
      *again.config.sharding.fsdp_version != 2 ||
      !same_training(read.config, again.config)) {
    result.findings.Problem(
        {.file = std::string(name)},
        "cannot be written for FSDP2 so that it trains the same, or is laid "
        "out in a way that cannot be edited");
    return result;
  }
  result.text = *converted;
  return result;
}

}  // namespace fsdp
