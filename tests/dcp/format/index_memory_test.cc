// SPDX-License-Identifier: Apache-2.0
// How much memory an index takes while it is read.
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/format/value/value_lookup.h"
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

// Counts the bytes that this test has allocated at once.
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

std::string LargeIndex(int64_t chunks_of_each = kChunksOfEach) {
  Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  for (int64_t i = 0; i < kNumTensors; ++i) {
    TensorStorageMetadata tensor{.dtype = DType::kFloat32,
                                 .size = {chunks_of_each, i + 1},
                                 .chunks = {}};
    for (int64_t k = 0; k < chunks_of_each; ++k) {
      const auto item = static_cast<uint64_t>(i * chunks_of_each + k);
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

// The same index with the plans that Megatron-core keeps: each item's storage
// and the tensor's properties once more.
std::string IndexWithPlans(const std::string& bytes) {
  constexpr absl::string_view kPlanner = "torch.distributed.checkpoint.planner";
  ValueArena arena;
  const auto index =
      ReadPickle(AsBytes(bytes), {.allow_global = IsMetadataGlobal}, arena);
  DCP_CHECK(index.ok());
  const Value root = index->root;
  const auto make = [&](absl::string_view name, absl::string_view field,
                        Value value) {
    const Value made = arena.New(arena.Global(kPlanner, name), arena.Tuple({}));
    arena.SetState(made, arena.Dict({arena.Str(field), value}));
    return made;
  };
  std::vector<Value> items;
  const Value storage = *FindKey(root.state(), "storage_data");
  for (size_t i = 0; i < storage.items().size(); i += 2) {
    items.push_back(
        make("WriteItem", "index", CopyValue(arena, storage.items()[i])));
    items.push_back(make("TensorWriteData", "properties",
                         arena.List({Value::Int(1), arena.Str("x")})));
  }
  arena.Update(root.state(),
               {arena.Str("all_local_plans"),
                arena.List({make("SavePlan", "items", arena.List(items))})});
  return WritePickle(root);
}

// The memory for reading an index, without the index's bytes.
uint64_t MemoryToRead(const std::string& bytes) {
  const uint64_t before = num_bytes;
  most_bytes = num_bytes;
  const absl::StatusOr<Metadata> metadata = ParseDcpMetadata(AsBytes(bytes));
  DCP_CHECK(metadata.ok(), metadata.status().message());
  DCP_CHECK(metadata->entries.size() == kNumTensors);
  return most_bytes - before;
}

TEST(IndexMemory, AChunkStaysWithinTheLimit) {
  const std::string bytes = LargeIndex();
  // The limit covers the index's bytes as well.
  EXPECT_LE(
      (MemoryToRead(bytes) + bytes.size()) / (kNumTensors * kChunksOfEach),
      kIndexBytesPerChunkRead);
}

TEST(IndexMemory, PlansNeedLittleMoreMemory) {
  const std::string bytes = LargeIndex(/*chunks_of_each=*/20);
  const std::string with_plans = IndexWithPlans(bytes);
  ASSERT_GE(with_plans.size(), bytes.size() * 5 / 4);
  // Unreferenced values are freed in steps of a quarter of the index.
  EXPECT_LE(MemoryToRead(with_plans),
            MemoryToRead(bytes) + with_plans.size() * 3 / 4);
}

}  // namespace
}  // namespace dcp
