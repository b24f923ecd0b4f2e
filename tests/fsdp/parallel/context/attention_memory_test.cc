// SPDX-License-Identifier: Apache-2.0
// The memory of attention over long sequences, by method. Bytes are counted
// where LibTorch allocates, so runs hardly differ.

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "c10/core/CPUAllocator.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

constexpr int64_t kLayers = 4;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadSize = 32;

// LibTorch's allocator for the CPU, and how many bytes live at most.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& Get() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }
  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(
        Block{c10::GetDefaultCPUAllocator()->allocate(bytes), bytes});
    const int64_t live = live_ += static_cast<int64_t>(bytes);
    int64_t peak = peak_;
    while (peak < live && !peak_.compare_exchange_weak(peak, live)) {
    }
    void* const data = block->memory.get();
    return {data, block.release(), &Free, c10::DeviceType::CPU};
  }
  void copy_data(void* dest, const void* src, size_t bytes) const override {
    default_copy_data(dest, src, bytes);
  }
  // Sets the peak to the bytes that live now, and returns them.
  int64_t ForgetPeak() { return peak_ = live_.load(); }
  int64_t peak() const { return peak_; }

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };
  static void Free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    Get().live_ -= static_cast<int64_t>(block->bytes);
  }
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
};

struct Peak {
  std::string method;
  int64_t length;
  bool is_causal;
};

// The bytes that this rank has at most in forward and backward of attention
// layers, apart from the input.
int64_t PeakBytes(const DeviceMesh& cp, const Peak& peak) {
  torch::Tensor h =
      torch::ones({1, kHeads, peak.length, kHeadSize}, torch::kFloat);
  const torch::Tensor weight =
      torch::ones({}, torch::kFloat).set_requires_grad(true);
  context_parallel(cp, {&h}, {.seq_dim = 2, .method = peak.method});
  h = h * weight;
  CountingAllocator& allocator = CountingAllocator::Get();
  const int64_t before = allocator.ForgetPeak();
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    h = at::scaled_dot_product_attention(h * 0.9, h * 0.8, h * 0.7, {}, 0,
                                         peak.is_causal);
  }
  h.sum().backward();
  return allocator.peak() - before;
}

// The causal mask that each rank makes for gathered keys grows with the square
// of the length. Prints rank 0's peaks, for docs/benchmarks.md.
TEST(AttentionMemory, OfARingIsAThirdOfThatOfGatheredKeys) {
  const std::vector<std::string> reports = RunRanks(4, [] {
    StartRank();
    c10::SetCPUAllocator(&CountingAllocator::Get());
    const DeviceMesh cp = init_device_mesh("cpu", {4}, {"cp"});
    for (const bool is_causal : {false, true}) {
      for (const int64_t length : {2048, 4096}) {
        const auto peak = [&](const char* method) {
          return PeakBytes(cp, {method, length, is_causal});
        };
        const int64_t gathered = peak("allgather");
        const int64_t ring = peak("alltoall");
        const int64_t heads = peak("ulysses");
        Report(absl::StrCat(length, is_causal ? " causal" : "", ": allgather ",
                            gathered, ", alltoall ", ring, ", ulysses ", heads,
                            " bytes\n"));
        EXPECT_LE(static_cast<double>(ring),
                  (is_causal ? 0.35 : 0.65) * static_cast<double>(gathered))
            << length;
      }
    }
  });
  if (!reports.empty()) std::cerr << reports[0];
}

}  // namespace
}  // namespace fsdp::testing
