// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/piece_chunks.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/convert_entries.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MappedPair;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::testing::ElementsAreArray;

// A source of four ranks, for three others.
class PieceChunksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SampleState state;
    state.Add(SampleTensor("a.weight", DType::kFloat32, {40, 5}, 1));
    state.Add(SampleTensor("b.weight", DType::kFloat32, {61, 7}, 1));
    state.Add(SampleTensor("empty", DType::kFloat32, {0, 7}, 1));
    state.Add(SampleTensor("scalar", DType::kFloat32, {}, 1));
    state.AddObject("step", Value::Int(7));
    SingleProcessCoordinator coordinator;
    ASSERT_OK(Save(fs_, "/model", state.state(), coordinator,
                   {.memory_bytes = kMinMemoryBytes}));
    ASSERT_OK(ConvertCheckpoint(fs_, "/model", "/source", Options("shard=4")));
    ASSERT_OK_AND_ASSIGN(
        conversion_,
        PrepareShare(fs_, "/source", "/out", Options("shard=3"), kSmallPiece));
    plan_ = MakeWorkPlan(conversion_, /*cuts_files=*/true, kSmallPiece);
    all_.resize(plan_.pieces.size());
    std::iota(all_.begin(), all_.end(), 0);
    ASSERT_GE(all_.size(), 5u);
  }

  static ConvertOptions Options(const char* mesh) {
    ConvertOptions options;
    options.mesh = *ParseMesh(mesh);
    options.memory_bytes = kMinMemoryBytes;
    return options;
  }

  PieceChunks Chunks() const {
    return PieceChunks(*conversion_.source, Entries(), conversion_.output,
                       plan_.pieces);
  }

  std::vector<uint32_t> Entries() const {
    return EntriesToLocate(*conversion_.source, conversion_.selected,
                           conversion_.plan.to);
  }

  // The chunks of tensors with which the payloads of a piece have elements in
  // common.
  std::set<EntryChunk> CommonWith(uint32_t number) const {
    std::set<EntryChunk> chunks;
    const FilePiece& piece = plan_.pieces[number];
    const FileLayout& layout = conversion_.output.files[piece.file].layout;
    for (uint32_t i = piece.first_part; i < piece.end_part; ++i) {
      const LayoutPart& part = layout.parts()[i];
      if (part.payload_length == 0) continue;
      const Payload& payload = conversion_.output.payloads[part.payload];
      for (const uint32_t e : Entries()) {
        const TensorEntry* const tensor =
            conversion_.source->entries()[e].tensor();
        if (tensor == nullptr || tensor != payload.stored) continue;
        for (uint32_t c = 0; c < tensor->boxes.size(); ++c) {
          if (Intersect(payload.box, tensor->boxes[c]).has_value()) {
            chunks.insert({e, c});
          }
        }
      }
    }
    return chunks;
  }

  static constexpr uint64_t kSmallPiece = 300;

  SimStorage fs_;
  Conversion conversion_;
  WorkPlan plan_;
  std::vector<uint32_t> all_;  // numbers of pieces
};

TEST_F(PieceChunksTest, APieceNeedsTheChunksThatItHasElementsOf) {
  const PieceChunks chunks = Chunks();
  for (uint32_t i = 1; i < all_.size(); ++i) {
    EXPECT_THAT(chunks.Needed({i}), ElementsAreArray(CommonWith(i))) << i;
  }
}

TEST_F(PieceChunksTest, TheFirstPieceHasWhatHasNoPayload) {
  std::set<EntryChunk> expected = CommonWith(0);
  const size_t num_common = expected.size();
  for (const char* name : {"empty", "step"}) {
    const std::vector<EntryChunk> chunks =
        conversion_.source->StoredChunks({*conversion_.source->Find(name)});
    expected.insert(chunks.begin(), chunks.end());
  }
  EXPECT_GT(expected.size(), num_common);
  EXPECT_THAT(Chunks().Needed({0}), ElementsAreArray(expected));
}

TEST_F(PieceChunksTest, AllPiecesNeedAllChunks) {
  EXPECT_EQ(Chunks().Needed(all_), conversion_.source->StoredChunks(Entries()));
}

TEST_F(PieceChunksTest, EachChunkBelongsToOneOfThePiecesThatNeedIt) {
  const PieceChunks chunks = Chunks();
  std::set<EntryChunk> seen;
  size_t num_owners = 0;
  for (const uint32_t i : all_) {
    const std::vector<EntryChunk> needed = chunks.Needed({i});
    const std::vector<EntryChunk> owned = chunks.Owned({i});
    num_owners += owned.empty() ? 0 : 1;
    for (const EntryChunk& chunk : owned) {
      EXPECT_TRUE(std::binary_search(needed.begin(), needed.end(), chunk));
      EXPECT_TRUE(seen.insert(chunk).second);
    }
  }
  EXPECT_EQ(seen.size(), chunks.Needed(all_).size());
  EXPECT_GT(num_owners, 1u);
  EXPECT_EQ(chunks.Owned(all_), chunks.Needed(all_));
}

// The stored chunks that the elements of each piece come from, one by one.
TEST(PieceChunksOfMapping, APieceNeedsTheStoredChunks) {
  SimStorage fs;
  MappedPair().Save(fs, "/source");
  ConvertOptions options;
  options.open.map = MappedPair::Map();
  options.mesh = *ParseMesh("shard=3");
  options.memory_bytes = kMinMemoryBytes;
  ASSERT_OK_AND_ASSIGN(const Conversion conversion,
                       PrepareShare(fs, "/source", "/out", options, 100));
  const WorkPlan plan = MakeWorkPlan(conversion, /*cuts_files=*/true, 100);
  const Checkpoint& source = *conversion.source;
  const PieceChunks chunks(
      source, EntriesToLocate(source, conversion.selected, conversion.plan.to),
      conversion.output, plan.pieces);
  // Rows of tensors are stored by twos.
  const auto chunk_of = [&](absl::string_view name, int64_t row) {
    uint32_t entry = 0;
    while (source.stored_entries()[entry].fqn != name) ++entry;
    return EntryChunk{entry, static_cast<uint32_t>(row / 2)};
  };
  std::set<EntryChunk> all;
  for (uint32_t i = 0; i < plan.pieces.size(); ++i) {
    std::set<EntryChunk> expected;
    const FilePiece& piece = plan.pieces[i];
    const FileLayout& layout = conversion.output.files[piece.file].layout;
    for (uint32_t p = piece.first_part; p < piece.end_part; ++p) {
      const LayoutPart& part = layout.parts()[p];
      if (part.payload_length == 0) continue;
      const Payload& payload = conversion.output.payloads[part.payload];
      const int64_t first = payload.box.offsets[0];
      for (int64_t r = first; r < first + payload.box.sizes[0]; ++r) {
        if (payload.stored->shape[0] == 11) {
          expected.insert(r < 7 ? chunk_of("x.q", r) : chunk_of("x.k", r - 7));
        } else if (payload.stored->shape[0] == 40) {
          expected.insert(chunk_of("emb", r));
        } else {
          for (int64_t row = 0; row < 30; ++row) {
            expected.insert(chunk_of("x.w", row));
          }
        }
      }
    }
    EXPECT_THAT(chunks.Needed({i}), ElementsAreArray(expected)) << i;
    for (const EntryChunk& chunk : chunks.Owned({i})) {
      EXPECT_TRUE(expected.contains(chunk)) << i;
      EXPECT_TRUE(all.insert(chunk).second) << i;
    }
  }
  EXPECT_EQ(all.size(), 4u + 2u + 20u + 15u);
}

}  // namespace
}  // namespace dcp
