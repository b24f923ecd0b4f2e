// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/reshaped_tensor.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "dcp/checkpoint/formats/item_part.h"
#include "dcp/plan/chunk_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// A byte tensor that is stored as `shape` in the given chunks. The items follow
// each other without gaps, so that they hold the elements in the chunks' order.
TensorEntry Stored(const Dims& shape, const std::vector<Box>& chunks) {
  TensorEntry tensor;
  tensor.dtype = DType::kUInt8;
  tensor.shape = shape;
  uint64_t offset = 0;
  for (const Box& chunk : chunks) {
    ChunkLocation location;
    location.payload_offset = offset;
    offset += static_cast<uint64_t>(Volume(chunk.sizes));
    tensor.boxes.push_back(chunk);
    tensor.locations.push_back(location);
  }
  return tensor;
}

// Calls `visit` with each element's position in a box with `sizes`.
template <typename Visit>
void ForEach(const Dims& sizes, Visit visit) {
  Dims at(sizes.size(), 0);
  for (int64_t i = 0; i < Volume(sizes); ++i) {
    visit(at);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++at[d] < sizes[d]) break;
      at[d] = 0;
    }
  }
}

int64_t ElementOffset(const Dims& at, const Dims& strides) {
  int64_t index = 0;
  for (size_t d = 0; d < at.size(); ++d) index += at[d] * strides[d];
  return index;
}

// Where each element in `tensor` is, in row-major order, once the items are
// located.
std::vector<int64_t> ElementPlaces(TensorEntry tensor) {
  std::vector<int64_t> places(static_cast<size_t>(Volume(tensor.shape)), -1);
  const Dims strides = RowMajorStrides(tensor.shape);
  for (size_t c = 0; c < tensor.boxes.size(); ++c) {
    const Box& box = tensor.boxes[c];
    ChunkLocation& location = tensor.locations[c];
    if (!tensor.parts.empty()) {
      NarrowToPart(tensor.parts[c], box.sizes, 1, location);
    }
    const Dims from = location.strides.empty() ? RowMajorStrides(box.sizes)
                                               : location.strides;
    ForEach(box.sizes, [&](const Dims& at) {
      const auto to = static_cast<size_t>(ElementOffset(box.offsets, strides) +
                                          ElementOffset(at, strides));
      places[to] = static_cast<int64_t>(location.payload_offset) +
                   ElementOffset(at, from);
    });
  }
  return places;
}

// The same for the tensor with `shape` that `stored` holds as blocks, element
// by element.
std::vector<int64_t> PlacesInBlocks(const TensorEntry& stored,
                                    const Dims& shape) {
  const std::vector<int64_t> of_stored = ElementPlaces(stored);
  const Dims stored_strides = RowMajorStrides(stored.shape);
  Dims block;
  for (size_t d = 0; d < shape.size(); ++d) {
    block.push_back(shape[d] / stored.shape[d]);
  }
  const Dims in_block = RowMajorStrides(block);
  std::vector<int64_t> places;
  ForEach(shape, [&](const Dims& at) {
    Dims where;
    int64_t element = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      where.push_back(at[d] / block[d]);
      element += at[d] % block[d] * in_block[d];
    }
    where.push_back(element);
    places.push_back(
        of_stored[static_cast<size_t>(ElementOffset(where, stored_strides))]);
  });
  return places;
}

// All blocks in `stored_shape`, each cut at the given elements.
std::vector<Box> CutBlocks(const Dims& stored_shape,
                           const std::vector<int64_t>& cuts) {
  std::vector<Box> chunks;
  const Dims counts(stored_shape.begin(), stored_shape.end() - 1);
  ForEach(counts, [&](const Dims& at) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Box& chunk = chunks.emplace_back();
      chunk.offsets = at;
      chunk.offsets.push_back(cuts[i]);
      chunk.sizes = Dims(at.size(), 1);
      chunk.sizes.push_back(cuts[i + 1] - cuts[i]);
    }
  });
  return chunks;
}

TEST(FromBlocks, PutsEveryElementInPlace) {
  const struct {
    Dims stored;
    Dims shape;
  } cases[] = {{{2, 1, 12}, {4, 6}},
               {{1, 6}, {6}},
               {{3, 2}, {6}},
               {{1}, {}},
               {{2, 2, 1, 6}, {4, 2, 3}},
               {{4, 2, 1, 6}, {4, 4, 3}}};
  for (const auto& test : cases) {
    const int64_t elements = test.stored.back();
    for (int64_t cut = 0; cut <= elements; ++cut) {
      SCOPED_TRACE(ShapeToString(test.shape) + " at " + std::to_string(cut));
      // An empty chunk is one of them.
      const TensorEntry stored =
          Stored(test.stored, CutBlocks(test.stored, {0, cut, elements}));
      CutBudget budget;
      ASSERT_OK_AND_ASSIGN(const TensorEntry tensor,
                           FromBlocks(stored, test.shape, budget));
      EXPECT_EQ(tensor.shape, test.shape);
      EXPECT_OK(CheckCoverage(tensor.shape, tensor.boxes));
      EXPECT_EQ(ElementPlaces(tensor), PlacesInBlocks(stored, test.shape));
    }
  }
}

TEST(FromBlocks, RefusesShapesThatDoNotFit) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const struct {
    Dims stored;
    Dims shape;
    const char* message;
  } cases[] = {
      {{2, 6}, {5}, "2 equal blocks do not make up 5 in dimension 0"},
      {{2, 6}, {4, 3}, "one dimension more"},
      {{12}, {12}, "one dimension more"},
      {{2, 5}, {12}, "a block of shape [6] does not have 5 elements"},
      {{1, 1, 12}, {kHuge, kHuge}, "exceeds 64 bits"},
      {{0, 12}, {12}, "0 equal blocks do not make up 12"},
      {{0, 0}, {0}, "0 equal blocks"},
      {{}, {}, "one dimension more"},
      {{1, 1}, {0}, "does not have 1 elements"},
  };
  for (const auto& test : cases) {
    CutBudget budget;
    EXPECT_THAT(FromBlocks(Stored(test.stored, {WholeBox(test.stored)}),
                           test.shape, budget),
                StatusIs(StatusCode::kDataLoss, HasSubstr(test.message)));
  }
}

TEST(FromBlocks, RefusesAChunkOfSeveralBlocks) {
  CutBudget budget;
  EXPECT_THAT(FromBlocks(Stored({2, 6}, {WholeBox(Dims{2, 6})}), {12}, budget),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("chunk [0:2, 0:6] of [2, 6] is not in one")));
}

TEST(Unstack, PutsEveryElementInPlace) {
  // Chunks with one layer and with several.
  const TensorEntry stacked = Stored(
      {3, 2, 4},
      {{{0, 0, 0}, {1, 2, 4}}, {{1, 0, 0}, {2, 1, 4}}, {{1, 1, 0}, {2, 1, 4}}});
  const std::vector<int64_t> whole = ElementPlaces(stacked);
  CutBudget budget;
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorEntry> layers,
                       Unstack(stacked, budget));
  ASSERT_EQ(layers.size(), 3u);
  std::vector<int64_t> places;
  for (const TensorEntry& layer : layers) {
    EXPECT_EQ(layer.shape, (Dims{2, 4}));
    EXPECT_OK(CheckCoverage(layer.shape, layer.boxes));
    const std::vector<int64_t> own = ElementPlaces(layer);
    places.insert(places.end(), own.begin(), own.end());
  }
  EXPECT_EQ(places, whole);
}

TEST(Unstack, LayersOfBlocks) {
  // One block holds two of the four layers.
  const TensorEntry stored =
      Stored({2, 1, 1, 12}, CutBlocks({2, 1, 1, 12}, {0, 5, 12}));
  CutBudget budget;
  ASSERT_OK_AND_ASSIGN(const TensorEntry tensor,
                       FromBlocks(stored, {4, 2, 3}, budget));
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorEntry> layers,
                       Unstack(tensor, budget));
  std::vector<int64_t> places;
  for (const TensorEntry& layer : layers) {
    EXPECT_OK(CheckCoverage(layer.shape, layer.boxes));
    const std::vector<int64_t> own = ElementPlaces(layer);
    places.insert(places.end(), own.begin(), own.end());
  }
  EXPECT_EQ(places, ElementPlaces(tensor));
}

TEST(Unstack, LayersWithoutElements) {
  const TensorEntry stacked = Stored({2, 0}, {WholeBox(Dims{2, 0})});
  CutBudget budget;
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorEntry> layers,
                       Unstack(stacked, budget));
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[1].shape, Dims{0});
  EXPECT_OK(CheckCoverage(layers[1].shape, layers[1].boxes));
}

TEST(Unstack, RefusesTensorsWithoutLayers) {
  CutBudget budget;
  EXPECT_THAT(
      Unstack(Stored({}, {WholeBox(Dims{})}), budget),
      StatusIs(StatusCode::kDataLoss, HasSubstr("not a stack of at most")));
  EXPECT_THAT(Unstack(Stored({1'000'000'000}, {}), budget),
              StatusIs(StatusCode::kDataLoss, HasSubstr("[1000000000]")));
}

TEST(CutBudget, CountsAllTensorsTogether) {
  CutBudget budget;
  EXPECT_OK(budget.Take(kMaxCutNumbers / 8, 4));
  EXPECT_OK(budget.Take(kMaxCutNumbers / 8 - 1, 4));
  EXPECT_THAT(budget.Take(2, 4), StatusIs(StatusCode::kResourceExhausted,
                                          HasSubstr("2 more pieces of 4")));
  EXPECT_OK(budget.Take(1, 0));
  EXPECT_THAT(budget.Take(1, 0), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(CutBudget().Take(UINT64_MAX, SIZE_MAX),
              StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace dcp
