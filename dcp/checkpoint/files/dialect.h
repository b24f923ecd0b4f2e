// SPDX-License-Identifier: Apache-2.0
// Dialect: how a training program lays out a checkpoint in files: as one of the
// formats itself, or in another way that uses them. Pure; any thread.
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
  kSafetensors,  // a Hugging Face model
  kTorch,        // one .pt file, or Hugging Face's .bin shards
  // The dialects that frameworks write.
  kRanks,          // torch.save files for each rank: verl, FSDP1, accelerate
  kDeepSpeed,      // ZeRO stages 0 to 3, and universal checkpoints
  kAccelerate,     // separate files for model, optimizer and more
  kTransformers,   // the Trainer's checkpoint-N
  kMegatron,       // Megatron-core's torch_dist, NeMo
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
