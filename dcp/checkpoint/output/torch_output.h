// SPDX-License-Identifier: Apache-2.0
// A .pt file: one torch.save archive that holds a nested state dict, built from
// names and paths. torch_rewrite.h builds one from another .pt file. Pure.
#ifndef DCP_CHECKPOINT_OUTPUT_TORCH_OUTPUT_H_
#define DCP_CHECKPOINT_OUTPUT_TORCH_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// Numbers an archive's storages; the same stored bytes get the same number.
class TorchStorages {
 public:
  explicit TorchStorages(SourceFiles& files) : files_(files) {}

  // The number of a storage that holds the elements of `tensor`, converted to
  // `dtype`. `tensor` must outlive the transfer.
  size_t Add(const TensorEntry& tensor, DType dtype);

  std::vector<Payload> Take() { return std::move(payloads_); }

 private:
  using Key =
      std::tuple<uint32_t, uint64_t, DType, DType, Dims, Dims, bool, bool>;

  size_t AddNew(const TensorEntry& tensor, DType dtype);

  SourceFiles& files_;
  std::vector<Payload> payloads_;
  absl::btree_map<Key, size_t> known_;
};

// The file that holds `pickle`, which refers to the storages "0", "1", ... in
// `storages`. The archive's first directory is derived from the file name, as
// torch.save does.
Output TorchFileOutput(absl::string_view file_name, std::string pickle,
                       std::vector<Payload> storages);

// If several names have the same stored tensor, they share a storage.
absl::StatusOr<Output> BuildTorchOutput(absl::Span<const OutputEntry> entries,
                                        SourceFiles& files,
                                        absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_TORCH_OUTPUT_H_
