// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/state_file.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/checkpoint/output/torch_output.h"
#include "dcp/checkpoint/write/image_transfer.h"

namespace dcp {
namespace {

// The entries from which the formats' outputs are built, as if they were
// stored.
struct Entries {
  std::deque<TensorEntry> tensors;  // in the order of the state
  std::deque<ObjectEntry> objects;
  std::vector<OutputEntry> entries;
};

Entries MakeEntries(const SaveState& state) {
  Entries made;
  for (const SaveTensor& tensor : state.tensors) {
    DCP_CHECK(tensor.box == WholeBox(tensor.shape), tensor.fqn);
    TensorEntry& entry = made.tensors.emplace_back();
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    made.entries.push_back({.fqn = tensor.fqn,
                            .path = tensor.path,
                            .tensor = &entry,
                            .dtype = tensor.dtype});
  }
  for (const SaveObject& object : state.objects) {
    ObjectEntry& entry = made.objects.emplace_back();
    entry.value = object.value;
    made.entries.push_back(
        {.fqn = object.fqn, .path = object.path, .object = &entry});
  }
  return made;
}

absl::Status CheckTensorsOnly(const SaveState& state) {
  if (state.objects.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const SaveObject& object : state.objects) names.push_back(object.fqn);
  return NonTensorsError(
      names, "save them to another file, or everything to a .pt file");
}

}  // namespace

bool NamesStateFile(absl::string_view path) {
  // Trainers also use .ckpt for directories.
  return FormatFromSuffix(path).has_value() && !absl::EndsWith(path, ".ckpt");
}

absl::StatusOr<std::unique_ptr<StateFile>> StateFile::Plan(
    FileSystem& fs, absl::string_view path, const SaveState& state,
    const SafetensorsMetadata& metadata, std::optional<Format> format) {
  std::unique_ptr<StateFile> file(new StateFile(fs, path));
  const Entries made = MakeEntries(state);
  SourceFiles nothing(fs, "", {}, DirectMode::kOff, /*follow_symlinks=*/false);
  if (!format.has_value()) format = FormatFromSuffix(path);
  if (format == Format::kSafetensors) {
    DCP_RETURN_IF_ERROR(CheckTensorsOnly(state));
    DCP_ASSIGN_OR_RETURN(
        file->output_,
        BuildSafetensorsFile(made.entries, nothing, BaseName(path), metadata));
  } else {
    DCP_ASSIGN_OR_RETURN(
        file->output_, BuildTorchOutput(made.entries, nothing, BaseName(path)));
  }
  absl::flat_hash_map<const TensorEntry*, size_t> numbers;
  for (size_t i = 0; i < made.tensors.size(); ++i) {
    numbers.emplace(&made.tensors[i], i);
  }
  for (Payload& payload : file->output_.payloads) {
    const size_t number = numbers.at(std::exchange(payload.stored, nullptr));
    payload.files = nullptr;
    payload.source = state.tensors[number].source;
    file->order_.push_back(number);
  }
  return file;
}

absl::Status StateFile::Write(const SaveOptions& options) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Destination> destination,
                       PlanDestination(fs_, path_, Destination::Kind::kFile,
                                       options.overwrite, {}, "a save"));
  DCP_RETURN_IF_ERROR(destination->Begin());
  TransferStats own_stats;
  DCP_ASSIGN_OR_RETURN(const OutputBlocks blocks,
                       OutputBlocksFor(fs_, path_, output_));
  DCP_RETURN_IF_ERROR(
      TransferImages(fs_, output_, *destination,
                     {.direct = options.direct,
                      .memory_bytes = std::max(options.memory_bytes,
                                               kMinBlocks * blocks.block_bytes),
                      .blocks = blocks,
                      .max_rate = options.max_rate,
                      .stop = options.stop},
                     options.stats != nullptr ? *options.stats : own_stats)
          .status());
  return destination->Commit("", "", "", {});
}

}  // namespace dcp
