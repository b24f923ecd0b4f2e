// SPDX-License-Identifier: Apache-2.0
// Dialect: how the program that wrote a checkpoint lays it out in files: as one
// of the formats itself, or in a way of its own that uses them. Pure; any
// thread.
#ifndef DCP_CHECKPOINT_FILES_DIALECT_H_
#define DCP_CHECKPOINT_FILES_DIALECT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

enum class Dialect : uint8_t {
  // The formats themselves.
  kDcp,          // FSDP1, TorchTitan and Composer, too
  kSafetensors,  // a model of Hugging Face
  kTorch,        // one .pt file, or the .bin shards of Hugging Face
  // Those of frameworks.
  kRanks,          // torch.save files for each rank: verl, FSDP1, accelerate
  kDeepSpeed,      // ZeRO stages 0 to 3, and universal checkpoints
  kAccelerate,     // model, optimizer and more, each in files of its own
  kTransformers,   // checkpoint-N of the Trainer
  kMegatron,       // torch_dist of Megatron-core, NeMo
  kTorchSnapshot,  // .snapshot_metadata
  kByteCheckpoint,
};

// "dcp", "safetensors", "pt", "ranks", "deepspeed", "accelerate",
// "transformers", "megatron", "torchsnapshot", "bytecheckpoint".
absl::string_view DialectName(Dialect dialect);
// InvalidArgument, with all names, for another name.
absl::StatusOr<Dialect> ParseDialect(absl::string_view name);
// All names, for messages: "dcp, safetensors, ... or bytecheckpoint".
std::string DialectNames();

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_DIALECT_H_
