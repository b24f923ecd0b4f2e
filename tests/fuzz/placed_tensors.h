// SPDX-License-Identifier: Apache-2.0
// Conditions for every tensor that an opener finds, whatever was in the files.
// One thread.
#ifndef TESTS_FUZZ_PLACED_TENSORS_H_
#define TESTS_FUZZ_PLACED_TENSORS_H_

#include <cstddef>
#include <cstdint>

#include "dcp/base/check.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/box.h"

namespace dcp::testing {

// Every element in every located box lies in the box's file, and the boxes have
// as many elements as the tensor.
inline void CheckPlaces(Checkpoint& checkpoint) {
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    const TensorEntry* const tensor = entry.tensor();
    if (tensor == nullptr) continue;
    int64_t volume = 0;
    for (size_t c = 0; c < tensor->boxes.size(); ++c) {
      const Dims& sizes = tensor->boxes[c].sizes;
      const ChunkLocation& location = tensor->locations[c];
      volume += Volume(sizes);
      if (Volume(sizes) == 0 || !location.located) continue;
      const Dims strides =
          location.strides.empty() ? RowMajorStrides(sizes) : location.strides;
      uint64_t last = 0;
      for (size_t d = 0; d < sizes.size(); ++d) {
        last += static_cast<uint64_t>((sizes[d] - 1) * strides[d]);
      }
      const auto file = checkpoint.files().Get(location.item.file);
      DCP_CHECK(file.ok());
      DCP_CHECK(
          location.payload_offset + (last + 1) * ElementSize(tensor->dtype) <=
              file->size,
          entry.fqn);
    }
    DCP_CHECK(volume == Volume(tensor->shape), entry.fqn);
  }
}

}  // namespace dcp::testing

#endif  // TESTS_FUZZ_PLACED_TENSORS_H_
