// SPDX-License-Identifier: Apache-2.0
// Recognises other programs' checkpoints by their file names.
// Tested by tests/dcp/checkpoint/open/no_checkpoint_test.cc.
#include "dcp/checkpoint/dialects/parts/foreign_directory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

template <typename IsOne>
bool HasMatchingName(const SourceDirectory& directory, const IsOne& is_one) {
  return std::any_of(directory.entries.begin(), directory.entries.end(),
                     [&](const DirectoryEntry& entry) {
                       return is_one(absl::string_view(entry.name));
                     });
}

bool IsOrbax(const SourceDirectory& directory) {
  for (const absl::string_view name :
       {"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt", ".zarray"}) {
    if (directory.HasFile(name)) return true;
  }
  return HasMatchingName(directory, [](absl::string_view name) {
    return absl::StartsWith(name, "ocdbt.process_");
  });
}

// Orbax keeps each of a step's items, such as MaxText's `items`, in a folder.
absl::StatusOr<bool> HasOrbaxItem(const SourceDirectory& directory) {
  for (const absl::string_view name : {"items", "default", "state", "params"}) {
    DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> item,
                         OpenChildDirectory(directory, name));
    if (item.has_value() && IsOrbax(*item)) return true;
  }
  return false;
}

// "checkpoint_last-shard0.pt", "reshard-model_part-0-shard3.pt".
bool IsFairscaleShard(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, ".pt")) return false;
  while (!name.empty() && absl::ascii_isdigit(name.back())) {
    name.remove_suffix(1);
  }
  return absl::EndsWith(name, "-shard");
}

bool IsTensorFlow(const SourceDirectory& directory) {
  return directory.HasFile("saved_model.pb") ||
         (directory.HasFile("checkpoint") &&
          HasMatchingName(directory, [](absl::string_view name) {
            return absl::EndsWith(name, ".index");
          }));
}

bool IsT5x(const SourceDirectory& directory) {
  return directory.HasFile("checkpoint") &&
         HasMatchingName(directory, [](absl::string_view name) {
           return absl::StartsWith(name, "target.");
         });
}

}  // namespace

absl::Status CheckForeignDirectory(const SourceDirectory& directory) {
  const auto refuse = [&](absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(directory.path, ": this is ", what));
  };
  if (IsT5x(directory)) {
    return refuse(
        "a T5X checkpoint (JAX), which is not supported: convert it with the "
        "scripts of transformers for T5X, or export it with Orbax");
  }
  DCP_ASSIGN_OR_RETURN(const bool has_orbax, HasOrbaxItem(directory));
  if (IsOrbax(directory) || has_orbax) {
    return refuse(
        "an Orbax checkpoint (JAX, such as MaxText's), which is not supported: "
        "export it to safetensors with Orbax");
  }
  if (IsTensorFlow(directory)) {
    return refuse(
        "a checkpoint of TensorFlow, which is not supported: read it there "
        "with tf.train.load_checkpoint");
  }
  if (directory.HasFile("checkpoint_metadata.json") &&
      directory.HasDirectory("model")) {
    return refuse(
        "a checkpoint of nanotron, which is not supported: convert it with "
        "nanotron's convert_nanotron_to_hf.py");
  }
  if (HasMatchingName(directory, IsFairscaleShard)) {
    return refuse(
        "a checkpoint of fairscale's FSDP (fairseq, metaseq) in shards, which "
        "is not supported: join them with the consolidation script of the "
        "program that wrote them");
  }
  return absl::OkStatus();
}

}  // namespace dcp
