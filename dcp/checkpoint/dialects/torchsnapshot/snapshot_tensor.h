// SPDX-License-Identifier: Apache-2.0
// SnapshotTensor: one stored TorchSnapshot tensor, and where the bytes are.
#ifndef DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_TENSOR_H_
#define DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_TENSOR_H_

#include <cstdint>

#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// Bytes [begin, end) in a file, or all of it.
struct SnapshotRange {
  uint32_t file = 0;  // in SnapshotManifest::files
  bool is_whole = true;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SnapshotTensor {
  enum class Form : uint8_t {
    kRaw,        // row-major little-endian elements
    kTorchSave,  // a torch.save archive
    kQuantized,  // not supported
  };
  DType dtype = DType::kFloat32;
  Dims shape;  // the volume in bytes fits into 64 bits
  Form form = Form::kRaw;
  SnapshotRange range;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_SNAPSHOT_TENSOR_H_
