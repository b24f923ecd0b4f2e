// How much memory an index takes while it is read.
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/format/dcp_metadata.h"
#include "dcp/format/dcp_metadata_writer.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace {

uint64_t num_bytes = 0;
uint64_t most_bytes = 0;

void* Count(void* memory) {
  if (memory == nullptr) std::abort();
  num_bytes += malloc_usable_size(memory);
  most_bytes = std::max(most_bytes, num_bytes);
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr) num_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// Counts what this test has allocated at once.
void* operator new(size_t size) { return Count(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto bytes = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(bytes, (size + bytes - 1) / bytes * bytes));
}
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return Count(std::malloc(size));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  Free(memory);
}

namespace dcp {
namespace {

constexpr int64_t kNumTensors = 80;
constexpr int64_t kChunksOfEach = 250;

std::string LargeIndex() {
  Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  for (int64_t i = 0; i < kNumTensors; ++i) {
    TensorStorageMetadata tensor{
        .dtype = DType::kFloat32, .size = {kChunksOfEach, i + 1}, .chunks = {}};
    for (int64_t k = 0; k < kChunksOfEach; ++k) {
      const auto item = static_cast<uint64_t>(i * kChunksOfEach + k);
      tensor.chunks.push_back(
          {.box = {.offsets = {k, 0}, .sizes = {1, i + 1}},
           .storage = {.file = 0, .offset = item * 4096, .length = 4096}});
    }
    const std::string name = absl::StrCat("model.layers.", i, ".weight");
    metadata.entries.push_back(
        {.fqn = name, .path = {name}, .value = std::move(tensor)});
  }
  return WriteDcpMetadata(metadata);
}

TEST(IndexMemory, AChunkTakesWhatTheLimitsSay) {
  const std::string bytes = LargeIndex();
  const uint64_t before = num_bytes;
  most_bytes = num_bytes;
  ASSERT_OK_AND_ASSIGN(const Metadata metadata,
                       ParseDcpMetadata(AsBytes(bytes)));
  ASSERT_EQ(metadata.entries.size(), size_t{kNumTensors});
  // The limit covers the bytes of the index as well.
  EXPECT_LE(
      (most_bytes - before + bytes.size()) / (kNumTensors * kChunksOfEach),
      kIndexBytesPerChunkRead);
}

}  // namespace
}  // namespace dcp
