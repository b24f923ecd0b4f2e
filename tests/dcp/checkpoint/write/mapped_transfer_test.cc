// SPDX-License-Identifier: Apache-2.0
// Outputs with mapped tensors as payloads, from the source's files to a
// checkpoint that is read back.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/interleaving.h"
#include "dcp/checkpoint/output/mapped_payloads.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/checkpoint/write/image_batches.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/tensor/element.h"
#include "dcp/tensor/placement.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_model.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using testing::MappedModel;
using testing::MemorySink;
using testing::SimStorage;
using testing::StoredCut;

std::vector<OutputEntry> MappedOutputEntries(const MappedModel& model,
                                             DType dtype) {
  std::vector<OutputEntry> entries;
  for (const MappedModel::Made& made : model.made()) {
    entries.push_back({.fqn = made.fqn,
                       .path = {},
                       .tensor = &made.mapped->entry(),
                       .dtype = dtype});
  }
  return entries;
}

// The model on a mesh; the mesh's axes cut these dimensions.
absl::StatusOr<Output> OnMesh(MappedModel& model, DType dtype,
                              const std::string& mesh_text,
                              const std::string& placements_text) {
  DCP_ASSIGN_OR_RETURN(const Mesh mesh, ParseMesh(mesh_text));
  DCP_ASSIGN_OR_RETURN(const Placements placements,
                       ParsePlacements(placements_text));
  std::vector<OutputEntry> entries = MappedOutputEntries(model, dtype);
  const std::vector<EntryLayout> layouts(entries.size(),
                                         {.placements = placements});
  DCP_ASSIGN_OR_RETURN(const std::vector<DcpRank> ranks,
                       ChunksForMeshes(entries, {mesh}, layouts));
  return BuildDcpOutput(
      std::move(entries), model.files(), ranks, {.save_id = "1"},
      [](int64_t rank) { return absl::StrCat("__", rank, "_0.distcp"); });
}

struct Transferred {
  uint64_t bytes_read = 0;
  uint64_t bytes_planned = 0;
};

absl::StatusOr<Transferred> Transfer(SimStorage& fs, Output& output,
                                     const std::string& path,
                                     Destination::Kind kind,
                                     uint64_t memory_bytes) {
  DCP_ASSIGN_OR_RETURN(const auto destination,
                       PlanDestination(fs, path, kind, false));
  DCP_RETURN_IF_ERROR(destination->Begin());
  const ImageTransferOptions options{.num_lanes = 1,
                                     .memory_bytes = memory_bytes};
  Transferred done;
  DCP_ASSIGN_OR_RETURN(
      done.bytes_planned,
      PlanTransfer(output, options, [](const PlannedRead&) {}));
  TransferStats stats;
  DCP_ASSIGN_OR_RETURN(
      const std::vector<ChunkDigest> digests,
      TransferImages(fs, output, *destination, options, stats));
  DCP_RETURN_IF_ERROR(destination->Commit(
      output.index_name, output.index != nullptr ? output.index() : "",
      output.digests_name, digests));
  done.bytes_read = stats.bytes_read;
  return done;
}

// The made bytes, as type `to`.
std::string Converted(const MappedModel::Made& made, DType to) {
  const DType from = made.mapped->entry().dtype;
  std::string bytes(made.bytes.size() / ElementSize(from) * ElementSize(to),
                    '\0');
  TransformElements({.from = from, .to = to},
                    reinterpret_cast<const uint8_t*>(made.bytes.data()),
                    reinterpret_cast<uint8_t*>(bytes.data()),
                    made.bytes.size() / ElementSize(from));
  return bytes;
}

void ExpectReadsBack(SimStorage& fs, const std::string& path,
                     const MappedModel& model, DType dtype) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(fs, path, {}));
  ASSERT_OK(checkpoint->LocateAll());
  for (const MappedModel::Made& made : model.made()) {
    SCOPED_TRACE(made.fqn);
    const std::string expected = Converted(made, dtype);
    MemorySink sink(expected.size());
    const Dims& shape = made.mapped->entry().shape;
    ASSERT_OK(Load(fs, *checkpoint,
                   {{.fqn = made.fqn,
                     .dtype = dtype,
                     .shape = shape,
                     .box = WholeBox(shape),
                     .sink = &sink}},
                   {.memory_bytes = kMinMemoryBytes, .verify = true}));
    EXPECT_TRUE(sink.bytes() == expected);
  }
}

struct MappedCase {
  std::string mesh;
  std::string placements;
};

TEST(MappedTransfer, ToDcpOnAnyMeshEqualsAnElementwiseLoop) {
  for (const MappedCase& c :
       {MappedCase{"shard=1", "S(0)"}, MappedCase{"shard=3", "S(0)"},
        MappedCase{"a=2,b=2", "S(0),S(0)"}}) {
    for (const StoredCut& cut :
         {StoredCut{}, StoredCut{.rows_per_chunk = 7, .in_columns = true},
          StoredCut{.rows_per_chunk = 1}}) {
      SCOPED_TRACE(absl::StrCat(c.mesh, " ", cut.rows_per_chunk));
      SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
      MappedModel model(fs, DType::kBFloat16, cut);
      model.AddEveryKind();
      model.Write();
      ASSERT_OK_AND_ASSIGN(
          Output output, OnMesh(model, DType::kBFloat16, c.mesh, c.placements));
      ASSERT_OK_AND_ASSIGN(
          const Transferred done,
          Transfer(fs, output, "/c", Destination::Kind::kDcpDirectory,
                   kMinMemoryBytes));
      EXPECT_EQ(done.bytes_planned, done.bytes_read);
      ExpectReadsBack(fs, "/c", model, DType::kBFloat16);
    }
  }
}

TEST(MappedTransfer, ToSafetensorsIsCastOnTheWay) {
  for (const uint64_t max_shard_bytes : {0, 2000}) {
    SimStorage fs;
    MappedModel model(fs, DType::kFloat32, {.rows_per_chunk = 11});
    model.AddEveryKind();
    model.Write();
    ASSERT_OK_AND_ASSIGN(
        Output output,
        BuildSafetensorsDirectory(MappedOutputEntries(model, DType::kBFloat16),
                                  model.files(), max_shard_bytes));
    ASSERT_OK(Transfer(fs, output, "/c", Destination::Kind::kDirectory,
                       kMinMemoryBytes));
    ExpectReadsBack(fs, "/c", model, DType::kBFloat16);
  }
}

// The destination's columns are the source's rows, and each rank needs some.
TEST(MappedTransfer, ReadsTransposedMatricesOnce) {
  SimStorage fs;
  MappedModel model(fs, DType::kComplex128, {.rows_per_chunk = 100});
  for (const char* name : {"a", "b", "c"}) {
    model.AddTransposed(name, {300, 400});
  }
  model.Write();
  ASSERT_OK_AND_ASSIGN(Output output,
                       OnMesh(model, DType::kComplex128, "shard=3", "S(0)"));
  EXPECT_TRUE(NeedsInterleaving(output));
  EXPECT_EQ(UsefulLanes(output), 1u);
  // From the first element that a shard needs to the last.
  EXPECT_GT(ScatteredBytes(output), 299u * 400 * 16);
  EXPECT_LE(ScatteredBytes(output), 300u * 400 * 16);
  ASSERT_OK_AND_ASSIGN(
      const Transferred done,
      Transfer(fs, output, "/c", Destination::Kind::kDcpDirectory,
               kDefaultMemoryBytes));
  EXPECT_EQ(done.bytes_planned, done.bytes_read);
  EXPECT_LT(done.bytes_read, model.num_stored_bytes() * 101 / 100);
  ExpectReadsBack(fs, "/c", model, DType::kComplex128);
}

TEST(MappedTransfer, ReadsATransposedMatrixAgainInLittleMemory) {
  SimStorage fs;
  MappedModel model(fs, DType::kComplex128, {});
  model.AddTransposed("w", {700, 800});
  model.Write();
  ASSERT_OK_AND_ASSIGN(Output output,
                       OnMesh(model, DType::kComplex128, "shard=1", "S(0)"));
  EXPECT_FALSE(NeedsInterleaving(output));
  ASSERT_OK_AND_ASSIGN(
      const Transferred done,
      Transfer(fs, output, "/c", Destination::Kind::kDcpDirectory,
               kMinMemoryBytes));
  EXPECT_EQ(done.bytes_planned, done.bytes_read);
  EXPECT_GT(done.bytes_read, model.num_stored_bytes() * 2);
  ExpectReadsBack(fs, "/c", model, DType::kComplex128);
}

// How many blocks the first batch gets for a transposed byte matrix, when a
// matrix with this shape is stored and a batch may have 4000 extents. Nothing
// is read.
size_t FirstBatchBlocks(const Dims& shape) {
  SimStorage fs;
  EXPECT_OK(WriteFile(fs, "/a", ""));
  SourceFiles files(fs, "/", {"a"}, DirectMode::kOff, true);
  TensorEntry stored;
  stored.dtype = DType::kUInt8;
  stored.shape = shape;
  stored.boxes = {WholeBox(shape)};
  stored.locations.emplace_back().located = true;
  const auto mapped =
      MappedTensor::Make(DType::kUInt8, {shape[1], shape[0]},
                         {testing::Transposition(0, shape)}, {&stored});
  EXPECT_OK(mapped);
  auto output = BuildSafetensorsFile({{.fqn = "w",
                                       .path = {},
                                       .tensor = &(*mapped)->entry(),
                                       .dtype = DType::kUInt8}},
                                     files, "model.safetensors");
  EXPECT_OK(output);
  ImageBatches batches(*output, {.max_nest_extents = 4000});
  batches.ReportPlans();
  batches.Start({0});
  BlockPool pool(8, kBlockBytes);
  Batch batch;
  while (pool.num_free() > 0) batch.blocks.push_back(pool.TryAcquire());
  EXPECT_OK(batches.Plan(batch));
  return batch.writes.size();
}

TEST(MappedTransfer, ClosesABatchWithALargePlan) {
  EXPECT_EQ(FirstBatchBlocks({5000, 60'000}), 8u);
  // Rows are too far apart to be read together. A batch's blocks need one
  // stripe from each, and an element more from some rows at the ends.
  EXPECT_EQ(FirstBatchBlocks({1000, 70'000}), 8u);
  EXPECT_EQ(FirstBatchBlocks({5000, 70'000}), 1u);
}

TEST(MappedTransfer, InterleavesFilesThatNeedStripesOfOneTensor) {
  SimStorage fs;
  MappedModel model(fs, DType::kFloat32, {});
  model.AddEveryKind();
  model.Write();
  // One file, or a file for each tensor.
  ASSERT_OK_AND_ASSIGN(
      Output one,
      BuildSafetensorsFile(MappedOutputEntries(model, DType::kFloat32),
                           model.files(), "model.safetensors"));
  EXPECT_FALSE(NeedsInterleaving(one));
  ASSERT_OK_AND_ASSIGN(
      Output each,
      BuildSafetensorsDirectory(MappedOutputEntries(model, DType::kFloat32),
                                model.files(), 1));
  EXPECT_TRUE(NeedsInterleaving(each));
  // Without the tensors that are split off the same one, none shares a source.
  std::vector<OutputEntry> others;
  for (const OutputEntry& entry : MappedOutputEntries(model, DType::kFloat32)) {
    if (entry.fqn.find("split") == std::string::npos) others.push_back(entry);
  }
  ASSERT_OK_AND_ASSIGN(Output apart,
                       BuildSafetensorsDirectory(others, model.files(), 1));
  EXPECT_FALSE(NeedsInterleaving(apart));
  // Shards in rows of a fused tensor take rows from the sources.
  ASSERT_OK_AND_ASSIGN(Output rows,
                       OnMesh(model, DType::kFloat32, "shard=3", "S(0)"));
  EXPECT_TRUE(NeedsInterleaving(rows));
}

TEST(MappedTransfer, WholeRowsAreNotScattered) {
  SimStorage fs;
  MappedModel model(fs, DType::kFloat32, {});
  model.AddEveryKind();
  std::vector<OutputEntry> in_rows;
  for (const OutputEntry& entry : MappedOutputEntries(model, DType::kFloat32)) {
    if (entry.fqn == "fused" || entry.fqn == "padded") {
      in_rows.push_back(entry);
    }
  }
  ASSERT_OK_AND_ASSIGN(Output output,
                       BuildSafetensorsFile(in_rows, model.files(), "f"));
  EXPECT_EQ(ScatteredBytes(output), 0u);
  EXPECT_EQ(BlocksForScattered(0, kBlockBytes), 0u);
}

TEST(MappedTransfer, KeepsOneChunkPerTensorAsStored) {
  SimStorage fs;
  MappedModel model(fs, DType::kFloat32, {.rows_per_chunk = 5});
  model.AddEveryKind();
  const std::vector<OutputEntry> entries =
      MappedOutputEntries(model, DType::kFloat32);
  size_t num_chunks = 0;
  for (const DcpRank& rank : ChunksAsStored(entries, model.files())) {
    for (const DcpChunk& chunk : rank) {
      EXPECT_EQ(chunk.box, WholeBox(entries[chunk.entry].tensor->shape));
      ++num_chunks;
    }
  }
  EXPECT_EQ(num_chunks, entries.size());
}

}  // namespace
}  // namespace dcp
