// SPDX-License-Identifier: Apache-2.0
// Plans batches that hold the same stretch of both sides, and compares them.
// Tested by tests/dcp/checkpoint/diff/diff_test.cc.
#include "dcp/checkpoint/read/tensor_comparison.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dcp/base/bytes.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/tensor/box.h"

namespace dcp {

void TensorComparison::Add(const TensorEntry& a, const TensorEntry& b,
                           DType dtype) {
  const auto num = static_cast<uint64_t>(Volume(a.shape));
  num_bytes_ += num * ElementSize(dtype);
  pairs_.push_back({&a, &b, dtype, num, {}});
}

absl::Status TensorComparison::Run(FileSystem& fs,
                                   const ReadRunOptions& options) {
  if (num_bytes_ == 0) return absl::OkStatus();
  ReadRunOptions run = options;
  // More blocks than there are bytes to read would be pinned for nothing.
  run.memory_bytes =
      std::min(options.memory_bytes,
               AlignUp(4 * num_bytes_, kBlockBytes) + 2 * kMinMemoryBytes);
  run.side = ErrorSide::kSource;
  const absl::Status read = RunReads(
      fs, run, [this](Batch& batch) { return NextBatch(batch); },
      [this](FileHandle handle) {
        const std::string name = a_.Describe(handle);
        return name.empty() ? b_.Describe(handle) : name;
      });
  if (!read.ok() && !absl::IsDataLoss(read)) return read;
  DCP_RETURN_IF_ERROR(WithSide(a_.CheckUnchanged(), ErrorSide::kSource));
  DCP_RETURN_IF_ERROR(WithSide(b_.CheckUnchanged(), ErrorSide::kSource));
  return read;
}

absl::StatusOr<bool> TensorComparison::NextBatch(Batch& batch) {
  // Owned by this batch's callback.
  auto stretches = std::make_unique<std::vector<Stretch>>();
  for (uint32_t i = 0; i < batch.blocks.size(); ++i) {
    PlanBlock(i, batch.blocks[i].data(), *stretches);
  }
  if (stretches->empty()) return false;
  DCP_RETURN_IF_ERROR(planner_.Finish(batch, kBlockBytes));
  batch.on_filled =
      [this, stretches = std::move(stretches)](std::vector<Block>& blocks) {
        for (const Stretch& stretch : *stretches) {
          Pair& pair = pairs_[stretch.pair];
          const uint8_t* a = blocks[stretch.block].data() + stretch.position;
          CompareElements(pair.dtype, a, a + kHalf, stretch.num_elements,
                          stretch.first, pair.difference, tolerance_);
        }
        return absl::OkStatus();
      };
  return true;
}

void TensorComparison::PlanBlock(uint32_t block, uint8_t* data,
                                 std::vector<Stretch>& stretches) {
  uint64_t position = 0;
  while (next_pair_ < pairs_.size()) {
    const Pair& pair = pairs_[next_pair_];
    const uint64_t element = ElementSize(pair.dtype);
    const uint64_t num = std::min(pair.num_elements - next_element_,
                                  (kHalf - position) / element);
    if (num > 0) {
      planner_.Add(*pair.a, a_, WholeBox(pair.a->shape), pair.dtype,
                   next_element_, num, data + position);
      planner_.Add(*pair.b, b_, WholeBox(pair.b->shape), pair.dtype,
                   next_element_, num, data + kHalf + position);
      stretches.push_back({next_pair_, block, position, next_element_, num});
      next_element_ += num;
      position += num * element;
    }
    if (next_element_ < pair.num_elements) return;
    ++next_pair_;
    next_element_ = 0;
  }
}

}  // namespace dcp
