#include "dcp/checkpoint/convert/piece_chunks.h"

#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/convert_entries.h"
#include "dcp/checkpoint/convert/share_commit.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

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
    plan_ = MakeWorkPlan(fs_, "/out", conversion_, kSmallPiece);
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
        conversion_.source->ChunksOf({*conversion_.source->Find(name)});
    expected.insert(chunks.begin(), chunks.end());
  }
  EXPECT_GT(expected.size(), num_common);
  EXPECT_THAT(Chunks().Needed({0}), ElementsAreArray(expected));
}

TEST_F(PieceChunksTest, AllPiecesNeedAllChunks) {
  EXPECT_EQ(Chunks().Needed(all_), conversion_.source->ChunksOf(Entries()));
}

TEST_F(PieceChunksTest, EachChunkBelongsToTheFirstPieceThatNeedsIt) {
  const PieceChunks chunks = Chunks();
  std::set<EntryChunk> seen;
  for (const uint32_t i : all_) {
    std::vector<EntryChunk> expected;
    for (const EntryChunk& chunk : chunks.Needed({i})) {
      if (seen.insert(chunk).second) expected.push_back(chunk);
    }
    EXPECT_EQ(chunks.Owned({i}), expected) << i;
  }
  EXPECT_EQ(chunks.Owned(all_), chunks.Needed(all_));
}

}  // namespace
}  // namespace dcp
