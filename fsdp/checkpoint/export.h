// SPDX-License-Identifier: Apache-2.0
// Exports a whole model from a sharded checkpoint to one file that PyTorch, the
// safetensors library and dcp-convert read. For the thread that trains, once
// the checkpoint is durable; collective, an error on one rank is returned on
// all.
#ifndef FSDP_CHECKPOINT_EXPORT_H_
#define FSDP_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct ExportOptions {
  ProcessGroup process_group = nullptr;  // as TorchSaveOptions
  // Exports only the names below this, without it: with "model",
  // "model.norm.weight" becomes "norm.weight". Empty: all names, unchanged.
  std::string prefix = {};
  // Floating tensors are cast to this; unset: they keep their type.
  std::optional<dcp::DType> dtype = {};
  // Replaces a checkpoint at `path`, once the new one is complete.
  bool overwrite = true;
  uint64_t memory_bytes = dcp::kDefaultMemoryBytes;  // on rank 0, for payload
  std::stop_token stop = {};
  dcp::FileSystem* file_system = nullptr;  // null: the operating system's
};

// Rank 0 reads the checkpoint and writes `path`, tensor by tensor, within its
// memory; the others wait. The name decides the format: .safetensors, .pt, .pth
// or .bin, else a DCP directory. `path` appears complete or not at all.
absl::Status export_full(const std::string& checkpoint, const std::string& path,
                         const ExportOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_EXPORT_H_
