// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/trainer_opener.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/huggingface/accelerate_opener.h"
#include "dcp/checkpoint/dialects/huggingface/extra_files.h"
#include "dcp/checkpoint/dialects/huggingface/whole_parts.h"
#include "dcp/checkpoint/dialects/parts/join_parts.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/format/json/json_value.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

constexpr absl::string_view kState = "trainer_state.json";
constexpr absl::string_view kOptimizers[] = {"optimizer.pt", "optimizer.bin"};
constexpr absl::string_view kTrainerFiles[] = {
    "scheduler.pt",  "scheduler.bin",        "scaler.pt",
    "rng_state.pth", "rng_state_{rank}.pth", "random_states_{rank}.pkl"};

// Model and optimizer; empty unless there are both.
absl::StatusOr<std::vector<PartToJoin>> OpenState(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::vector<PartToJoin> parts,
                       OpenFsdpParts(directory, options, stop));
  if (!parts.empty()) return parts;
  for (const absl::string_view optimizer : kOptimizers) {
    if (!directory.HasFile(optimizer)) continue;
    DCP_ASSIGN_OR_RETURN(
        const std::optional<ModelFiles> model,
        FindModelFiles(*directory.fs, directory.path, directory.entries, stop));
    if (!model.has_value()) return parts;
    PartToJoin weights{
        .folder = "", .prefix = {PathElement("model")}, .parts = {}};
    DCP_ASSIGN_OR_RETURN(weights.parts,
                         OpenModel(*directory.fs, *model, options, stop));
    parts.push_back(std::move(weights));
    DCP_ASSIGN_OR_RETURN(PartToJoin state,
                         OpenOptimizer(directory, std::string(optimizer),
                                       "optimizer", &parts[0], options, stop));
    parts.push_back(std::move(state));
    return parts;
  }
  return parts;
}

// trainer_state.json as one object.
absl::StatusOr<PartToJoin> OpenTrainerState(const SourceDirectory& directory,
                                            const OpenOptions& options,
                                            const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadText(directory, kState, kMaxMetadataBytes, stop));
  PartToJoin part{.folder = "", .prefix = {PathElement("extra")}, .parts = {}};
  CheckpointParts& parts = part.parts;
  absl::StatusOr<Value> value = ParseJsonValue(text, parts.arena);
  if (!value.ok()) return Annotate(value.status(), directory.FullPath(kState));
  parts.format = Format::kTorch;
  parts.files = std::make_unique<SourceFiles>(
      *directory.fs, directory.path,
      std::vector<std::string>{std::string(kState)}, options.direct,
      /*follow_symlinks=*/false);
  ObjectEntry object;
  object.located = true;
  object.value = *value;
  CheckpointEntry& entry = parts.entries.emplace_back();
  entry.path = {PathElement("trainer_state")};
  entry.value = std::move(object);
  const std::optional<Value> step = FindKey(*value, "global_step");
  if (step.has_value() && step->is(Value::Kind::kInt)) {
    parts.properties.emplace_back("step", absl::StrCat(step->int_value()));
  }
  return part;
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenTrainer(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  if (!directory.HasFile(kState)) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(std::vector<PartToJoin> parts,
                       OpenState(directory, options, stop));
  if (parts.empty()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(std::optional<PartToJoin> extra,
                       OpenExtraFiles(directory, kTrainerFiles, options, stop));
  if (extra.has_value()) parts.push_back(*std::move(extra));
  DCP_ASSIGN_OR_RETURN(PartToJoin state,
                       OpenTrainerState(directory, options, stop));
  auto properties = std::move(state.parts.properties);
  parts.push_back(std::move(state));
  DCP_ASSIGN_OR_RETURN(CheckpointParts whole,
                       JoinParts(directory.path, std::move(parts)));
  whole.dialect = Dialect::kTransformers;
  whole.properties = std::move(properties);
  return whole;
}

}  // namespace dcp
