// SPDX-License-Identifier: Apache-2.0
// A ValueArena's memory. Only for value_arena*.cc.
#ifndef DCP_FORMAT_VALUE_VALUE_ARENA_IMPL_H_
#define DCP_FORMAT_VALUE_VALUE_ARENA_IMPL_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Memory that is freed all at once.
struct ArenaMemory {
  // Block sizes double up to the largest, so that a small pickle uses little
  // memory and a large one few allocations.
  static constexpr size_t kFirstBlockBytes = 4 << 10;
  static constexpr size_t kLastBlockBytes = 8 << 20;
  // Blocks of at least a huge page use huge pages if the kernel provides them:
  // an index with 100,000 tensors uses 170 MB, and page faults took a third of
  // the time to read it. Pages above 4 KiB need fewer faults, and their huge
  // pages are larger than all blocks.
  static constexpr size_t BlockAlignment(size_t bytes, uint64_t page_bytes) {
    const uint64_t huge_bytes = HugePageBytes(page_bytes);
    return huge_bytes <= std::min(bytes, kLastBlockBytes)
               ? huge_bytes
               : alignof(std::max_align_t);
  }

  struct FreeBlock {
    size_t alignment = 0;
    size_t size = 0;
    void operator()(char* block) const {
      ::operator delete(block, std::align_val_t(alignment));
    }
  };

  using Block = std::unique_ptr<char, FreeBlock>;

  // `alignment` must not exceed operator new's.
  char* Allocate(size_t bytes, size_t alignment) {
    const size_t skip =
        (0 - reinterpret_cast<uintptr_t>(next)) & (alignment - 1);
    if (static_cast<size_t>(end - next) >= bytes + skip) {
      char* result = next + skip;
      next = result + bytes;
      return result;
    }
    if (bytes > block_bytes / 4) return AddBlock(bytes);
    next = AddBlock(block_bytes);
    end = next + block_bytes;
    block_bytes = std::min(block_bytes * 2, kLastBlockBytes);
    char* result = next;
    next += bytes;
    return result;
  }

  char* AddBlock(size_t bytes) {
    const size_t alignment = BlockAlignment(bytes, PageBytes());
    const size_t size = AlignUp(bytes, alignment);
    num_bytes += size;
    if (size == kLastBlockBytes && !spare.empty()) {
      blocks.push_back(std::move(spare.back()));
      spare.pop_back();
      return blocks.back().get();
    }
    // If memory runs out, the program's new-handler is called, as for all
    // memory.
    char* block =
        static_cast<char*>(::operator new(size, std::align_val_t(alignment)));
    // Only advice; without it the pages are small.
    if (alignment > alignof(std::max_align_t)) {
      madvise(block, size, MADV_HUGEPAGE);
    }
    blocks.emplace_back(block, FreeBlock{alignment, size});
    return block;
  }

  // Takes the largest blocks from `other`, which is not used any more, for
  // later: the kernel would have to clear new ones.
  void TakeSpare(ArenaMemory& other) {
    for (Block& block : other.blocks) {
      if (block.get_deleter().size != kLastBlockBytes) continue;
      spare.push_back(std::move(block));
    }
  }

  std::vector<Block> blocks;
  std::vector<Block> spare;  // each of kLastBlockBytes; not in num_bytes
  char* next = nullptr;
  char* end = nullptr;
  size_t block_bytes = kFirstBlockBytes;
  size_t num_bytes = 0;
};

// [Note: bytes before a container] Every container except kGlobal has 8 bytes
// before the address that Values hold. Measure() stores results there, and
// KeepOnly() the container's new address. Otherwise each walk over a graph with
// shared parts would need a hash table of all containers.
struct ValueArena::Impl {
  struct Mark {
    static constexpr uint32_t kOpen = ~uint32_t{0};  // being walked
    uint32_t depth = 0;
    uint32_t size = 0;  // 0 while unknown; index in the walk while kOpen
  };
  static_assert(sizeof(Mark) == 8);
  static_assert(alignof(Value) == sizeof(Mark));

  absl::string_view CopyText(absl::string_view text) {
    DCP_CHECK(text.size() <= kMaxMetadataBytes, "text of ", text.size());
    if (text.empty()) return absl::string_view("", 0);
    char* copy = lasting.Allocate(text.size(), 1);
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }

  // Allocates a node or values, with a Mark before them.
  void* AllocateMarked(size_t bytes) {
    ++num_values;
    char* raw = containers.Allocate(sizeof(Mark) + bytes, alignof(Value));
    new (raw) Mark();
    return raw + sizeof(Mark);
  }

  static Mark& ContainerMark(const void* identity) {
    return *reinterpret_cast<Mark*>(
        const_cast<char*>(static_cast<const char*>(identity)) - sizeof(Mark));
  }

  // A container's contents, in stages of consecutive values: the order in which
  // a pickle is written. No value in the first stage can refer to the call.
  static constexpr int kNumStages = 4;
  static absl::Span<const Value> Parts(const Value& container, int stage);

  Value::GlobalNode* InternGlobal(absl::string_view module,
                                  absl::string_view name);
  void Grow(Value::SequenceNode& sequence, size_t added, bool exactly);
  void AppendAll(Value::SequenceNode& sequence, absl::Span<const Value> added);

  ArenaMemory containers;  // and their contents, except for texts
  // Texts and globals, which KeepOnly() keeps: most are needed as long as the
  // pickle, so moving them again and again would free little.
  ArenaMemory lasting;
  uint64_t num_values = 0;
  // The keys' texts are in the arena.
  absl::flat_hash_map<std::pair<absl::string_view, absl::string_view>,
                      Value::GlobalNode*>
      globals;
};

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_VALUE_ARENA_IMPL_H_
