// SPDX-License-Identifier: Apache-2.0
// Loads through mappings: the tiny models in tests/golden/mappings, box by box,
// against the programs' own results; which bytes are read; and the refusals.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/mapped/map_request.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/dcp/maps/golden_pairs.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ArrayTensor;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPair;
using ::dcp::testing::GoldenPairs;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::LinesOf;
using ::dcp::testing::MappedPair;
using ::dcp::testing::MemorySink;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

uint64_t NumBytes(const Box& box) {
  return static_cast<uint64_t>(Volume(box.sizes)) * 4;
}

// Rank `rank`'s part of a tensor, out of `count`: along the first dimension, or
// the last one.
Box RankShard(const Dims& shape, bool along_last, int64_t rank, int64_t count) {
  Box box = WholeBox(shape);
  if (shape.empty()) return box;
  const size_t dim = along_last ? shape.size() - 1 : 0;
  const int64_t begin = shape[dim] * rank / count;
  box.offsets[dim] = begin;
  box.sizes[dim] = shape[dim] * (rank + 1) / count - begin;
  return box;
}

// Copies the elements in `box`, which have 4 bytes each, into those in `shape`.
void PutBox(const Dims& shape, const Box& box, const std::string& part,
            std::string& whole) {
  const Dims strides = RowMajorStrides(shape);
  const Dims part_strides = RowMajorStrides(box.sizes);
  for (int64_t i = 0; i < Volume(box.sizes); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      at += (box.offsets[d] + i / part_strides[d] % box.sizes[d]) * strides[d];
    }
    std::copy_n(part.begin() + i * 4, 4, whole.begin() + at * 4);
  }
}

// Loads rank `rank`'s part of every tensor, out of `count`, into `whole`.
absl::Status LoadRank(FileSystem& fs, Checkpoint& checkpoint, bool along_last,
                      int64_t rank, int64_t count,
                      std::vector<ArrayTensor>& whole) {
  std::vector<std::unique_ptr<MemorySink>> sinks;
  std::vector<LoadTensor> wanted;
  for (const ArrayTensor& array : whole) {
    const Dims& shape = array.tensor.shape;
    const Box box = RankShard(shape, along_last, rank, count);
    // Every second sink lets the load write directly to memory.
    sinks.push_back(std::make_unique<MemorySink>(
        NumBytes(box), /*direct=*/sinks.size() % 2 == 0));
    wanted.push_back({.fqn = array.tensor.name,
                      .dtype = array.tensor.dtype,
                      .shape = shape,
                      .box = box,
                      .sink = sinks.back().get()});
  }
  const absl::Status loaded =
      Load(fs, checkpoint, wanted,
           {.memory_bytes = kMinMemoryBytes, .verify = rank == 0});
  if (!loaded.ok()) return loaded;
  for (size_t i = 0; i < whole.size(); ++i) {
    PutBox(wanted[i].shape, wanted[i].box, sinks[i]->bytes(), whole[i].bytes);
  }
  return absl::OkStatus();
}

std::vector<GoldenPair> JudgedPairs() {
  std::vector<GoldenPair> judged = GoldenPairs();
  std::erase_if(judged, [](const auto& pair) { return pair.judge.empty(); });
  return judged;
}

class MappedLoad : public ::testing::TestWithParam<GoldenPair> {};

TEST_P(MappedLoad, RanksGetTheProgramsTensors) {
  const GoldenPair& pair = GetParam();
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  const std::string source =
      GoldenPath(pair.model, absl::StrCat(pair.file, ".safetensors"));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const MapSpec> map,
                       FindMap(*fs, source,
                               {.family = pair.mapping,
                                .from = "hf",
                                .to = pair.side,
                                .settings = pair.settings}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(*fs, source, {.map = map}));
  for (const bool along_last : {false, true}) {
    std::vector<ArrayTensor> whole;
    for (const CheckpointEntry& entry : checkpoint->entries()) {
      const TensorEntry& tensor = *entry.tensor();
      ASSERT_EQ(ElementSize(tensor.dtype), 4u) << entry.fqn;
      whole.push_back(
          {.tensor = {.name = entry.fqn,
                      .dtype = tensor.dtype,
                      .shape = tensor.shape},
           .bytes = std::string(NumBytes(WholeBox(tensor.shape)), '\0')});
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      ASSERT_OK(LoadRank(*fs, *checkpoint, along_last, rank, 3, whole));
    }
    EXPECT_THAT(LinesOf(whole),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MappedLoad, ::testing::ValuesIn(JudgedPairs()));

class MappedLoadTest : public ::testing::Test {
 protected:
  LoadTensor Want(const SampleTensor& tensor, MemorySink& sink) const {
    return {.fqn = tensor.fqn,
            .dtype = tensor.dtype,
            .shape = tensor.shape,
            .box = WholeBox(tensor.shape),
            .sink = &sink};
  }

  SimStorage fs_;
};

TEST_F(MappedLoadTest, NamesTensorsOfBothSpellings) {
  const MappedPair pair;
  pair.Save(fs_, "/source");
  const auto checkpoint = MappedPair::Open(fs_, "/source");
  MemorySink sink(11 * 5 * 4);
  const LoadTensor good = Want(pair.made().at("fused"), sink);
  LoadTensor shape = good;
  shape.shape = {12, 5};
  LoadTensor table = Want(pair.made().at("table"), sink);
  table.dtype = DType::kInt32;
  EXPECT_THAT(
      Load(fs_, *checkpoint, {good, shape, table}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("fused is stored as [11, 5], but requested as "
                               "[12, 5] (made of x.q, x.k)"),
                     HasSubstr("table is stored as float32"),
                     HasSubstr("(made of emb)"))));
  LoadTensor missing = good;
  missing.fqn = "model.fused";
  EXPECT_THAT(Load(fs_, *checkpoint, {missing}, {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("lacks model.fused; pair, from theirs to "
                                 "ours, makes fused, table, turned from the "
                                 "stored tensors")));
  EXPECT_EQ(sink.num_placed_bytes(), 0u);
}

TEST_F(MappedLoadTest, ComparesTiedTensorsBeforeItFillsAnything) {
  MappedPair pair;
  pair.TearHead(7);
  pair.Save(fs_, "/source");
  const auto checkpoint = MappedPair::Open(fs_, "/source");
  const SampleTensor& fused = pair.made().at("fused");
  MemorySink sink(fused.bytes.size());
  EXPECT_THAT(Load(fs_, *checkpoint, {Want(fused, sink)}, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("head"), HasSubstr("emb"))));
  EXPECT_EQ(sink.num_placed_bytes(), 0u);
  ASSERT_OK(Load(fs_, *checkpoint, {Want(fused, sink)}, {.check_ties = false}));
  EXPECT_EQ(sink.bytes(), fused.bytes);
}

// Three stored tensors; a rank needs one.
TEST_F(MappedLoadTest, ReadsOnlyTheBoxesSources) {
  constexpr int64_t kColumns = 20'000;
  SampleState state;
  std::string expected;
  for (const char* name : {"k", "q", "v"}) {
    const SampleTensor tensor(name, DType::kFloat32, {20, kColumns});
    if (*name == 'k') expected = tensor.bytes;
    state.Add(tensor);
  }
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs_, "/source", state.state(), coordinator, {}));
  const auto checkpoint = MappedPair::Open(fs_, "/source", R"(tessera-mapping: 1
name: fused
sides: {theirs: , ours: }
rules:
- theirs: [q: a c, k: b c, v: d c]
  ours: [qkv: (a + b + d) c]
)");
  MemorySink sink(expected.size(), /*direct=*/true);
  TransferStats stats;
  ASSERT_OK(Load(fs_, *checkpoint,
                 {{.fqn = "qkv",
                   .dtype = DType::kFloat32,
                   .shape = {60, kColumns},
                   .box = {{20, 0}, {20, kColumns}},
                   .sink = &sink}},
                 {.stats = &stats}));
  EXPECT_TRUE(sink.bytes() == expected);
  EXPECT_LT(static_cast<double>(stats.bytes_read.load()),
            1.1 * static_cast<double>(expected.size()));
}

// Each row in the result has an element from every stored row, so rows that do
// not fit into a batch are read again for the next one.
TEST_F(MappedLoadTest, ReadsATransposedMatrixOnce) {
  const SampleTensor matrix("w", DType::kFloat32, {1700, 1702});
  SampleState state;
  state.Add(matrix);
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs_, "/source", state.state(), coordinator, {}));
  const auto checkpoint = MappedPair::Open(fs_, "/source", R"(tessera-mapping: 1
name: turned
sides: {theirs: , ours: }
rules:
- theirs: [w: a b]
  ours: [w: b a]
)");
  for (const bool direct : {false, true}) {
    MemorySink sink(matrix.bytes.size(), direct);
    TransferStats stats;
    ASSERT_OK(Load(fs_, *checkpoint,
                   {{.fqn = "w",
                     .dtype = DType::kFloat32,
                     .shape = {1702, 1700},
                     .box = {{0, 0}, {1702, 1700}},
                     .sink = &sink}},
                   {.memory_bytes = 16 * kBlockBytes, .stats = &stats}));
    for (const uint64_t at : {0u, 1u, 1700u, 1'000'001u, 1700u * 1702u - 1}) {
      const uint64_t from = (at % 1700 * 1702 + at / 1700) * 4;
      EXPECT_EQ(sink.bytes().substr(at * 4, 4), matrix.bytes.substr(from, 4));
    }
    EXPECT_LT(static_cast<double>(stats.bytes_read.load()),
              1.1 * static_cast<double>(matrix.bytes.size()));
  }
}

}  // namespace
}  // namespace dcp
