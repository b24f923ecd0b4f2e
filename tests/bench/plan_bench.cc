// SPDX-License-Identifier: Apache-2.0
// Times the save planner, and the index in which loads find their chunks, on
// checkpoints with a million chunks. Writes JSON: a list of {"workload",
// "scale", "chunks", "items", "seconds": [...]}, one number for each
// repetition. They are processor time: planning has one thread and waits for
// nothing, so other work on the machine disturbs little.
//
//   plan_bench [--scale=DIVISOR] [--repeat=N]
//
//   load-tensors, check-tensors   1000 tensors of 1000 chunks; for 1024 ranks
//   save-tensors, save-replicas   1000 tensors on 1000 ranks
//   load-grid-*, check-grid       one tensor in 1000 x 1000 chunks; wanted as
//                                 32 x 32, 1024 rows, or 999 x 999
//
// A scale of 10 means a tenth of the tensors, or of the grid's chunks.
// plan_bench.py times PyTorch's planner on the same problems.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/save_plan.h"
#include "dcp/tensor/placement.h"

namespace dcp {
namespace {

constexpr int64_t kRows = 1'048'576;  // in every tensor
constexpr int64_t kColumns = 4096;

Mesh MakeMesh(const std::vector<int64_t>& sizes) {
  Mesh mesh;
  for (const int64_t size : sizes) {
    mesh.axes.push_back(
        {.name = absl::StrCat("axis", mesh.axes.size()), .size = size});
  }
  return mesh;
}

// A tensor's parts on all ranks in `mesh`: axis a cuts dimension a.
std::vector<Box> Shards(const Dims& shape, const Mesh& mesh) {
  Placements placements(mesh.axes.size());
  for (size_t a = 0; a < placements.size(); ++a) {
    placements[a] = {.kind = Placement::Kind::kShard,
                     .dim = static_cast<int64_t>(a)};
  }
  std::vector<Box> shards;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    const auto boxes =
        LocalBoxes(shape, mesh, placements, mesh.Coordinate(rank));
    DCP_CHECK(boxes.ok(), boxes.status().ToString());
    shards.insert(shards.end(), boxes->begin(), boxes->end());
  }
  return shards;
}

// Adds one line to the report: `run()` returns how many items it planned.
template <typename Run>
void Measure(absl::string_view workload, int64_t scale, int64_t num_chunks,
             int repeat, const Run& run, std::vector<std::string>& report) {
  std::vector<std::string> seconds;
  size_t num_items = 0;
  for (int i = 0; i < repeat; ++i) {
    const std::clock_t start = std::clock();
    num_items = run();
    const std::clock_t elapsed = std::clock() - start;
    seconds.push_back(
        absl::StrCat(static_cast<double>(elapsed) / CLOCKS_PER_SEC));
  }
  report.push_back(
      absl::StrCat("{\"workload\": \"", workload, "\", \"scale\": ", scale,
                   ", \"chunks\": ", num_chunks, ", \"items\": ", num_items,
                   ", \"seconds\": [", absl::StrJoin(seconds, ", "), "]}"));
}

// Finds the chunks that hold the `wanted` boxes in `num_tensors` tensors, each
// cut like `stored`, as WindowPlanner does for every load.
size_t FindChunks(int64_t num_tensors, const std::vector<Box>& wanted,
                  const std::vector<Box>& stored) {
  size_t num_items = 0;
  int64_t num_elements = 0;
  for (int64_t t = 0; t < num_tensors; ++t) {
    const ChunkIndex index(stored);
    for (const Box& box : wanted) {
      index.ForEachOverlap(box, [&](size_t /*chunk*/, const Box& overlap) {
        ++num_items;
        num_elements += Volume(overlap.sizes);
      });
    }
  }
  int64_t num_wanted = 0;
  for (const Box& box : wanted) num_wanted += Volume(box.sizes);
  DCP_CHECK(num_elements == num_tensors * num_wanted, num_elements,
            " elements were found");
  return num_items;
}

size_t CheckCoverages(int64_t num_tensors, const Dims& shape,
                      const std::vector<Box>& stored) {
  for (int64_t t = 0; t < num_tensors; ++t) {
    const absl::Status status = CheckCoverage(shape, stored);
    DCP_CHECK(status.ok(), status.ToString());
  }
  return static_cast<size_t>(num_tensors) * stored.size();
}

size_t PlanSaves(const std::vector<SaveItem>& items, const Mesh& mesh) {
  const auto plans = PlanSave(items, mesh);
  DCP_CHECK(plans.ok(), plans.status().ToString());
  size_t num_items = 0;
  for (const SavePlan& plan : *plans) num_items += plan.size();
  return num_items;
}

// 1000 tensors from 1000 ranks, to be loaded by 1024.
void MeasureTensors(int64_t scale, int repeat,
                    std::vector<std::string>& report) {
  const Dims shape = {kRows, kColumns};
  const int64_t num_tensors = 1000 / scale;
  const Mesh mesh = MakeMesh({1000});
  const std::vector<Box> stored = Shards(shape, mesh);
  const std::vector<Box> wanted = Shards(shape, MakeMesh({1024}));
  const int64_t num_chunks = num_tensors * 1000;
  Measure(
      "load-tensors", scale, num_chunks, repeat,
      [&] { return FindChunks(num_tensors, wanted, stored); }, report);
  Measure(
      "check-tensors", scale, num_chunks, repeat,
      [&] { return CheckCoverages(num_tensors, shape, stored); }, report);
  const std::vector<SaveItem> sharded(
      static_cast<size_t>(num_tensors),
      {.shape = shape,
       .element_bytes = 2,
       .placements = {{.kind = Placement::Kind::kShard}}});
  Measure(
      "save-tensors", scale, num_chunks, repeat,
      [&] { return PlanSaves(sharded, mesh); }, report);
  std::vector<SaveItem> replicated = sharded;
  for (SaveItem& item : replicated) item.placements = {Placement{}};
  Measure(
      "save-replicas", scale, num_chunks, repeat,
      [&] { return PlanSaves(replicated, mesh); }, report);
}

// One tensor in a grid of 1000 x 1000 chunks, to be loaded in another grid.
void MeasureGrid(int64_t scale, int repeat, std::vector<std::string>& report) {
  const Dims shape = {kRows, kRows};
  int64_t side = 1000;
  while (side * side > 1'000'000 / scale) --side;
  const std::vector<Box> stored = Shards(shape, MakeMesh({side, side}));
  const int64_t num_chunks = side * side;
  const std::vector<Box> coarse = Shards(shape, MakeMesh({32, 32}));
  Measure(
      "load-grid-coarse", scale, num_chunks, repeat,
      [&] { return FindChunks(1, coarse, stored); }, report);
  const std::vector<Box> rows = Shards(shape, MakeMesh({1024}));
  Measure(
      "load-grid-rows", scale, num_chunks, repeat,
      [&] { return FindChunks(1, rows, stored); }, report);
  const std::vector<Box> fine = Shards(shape, MakeMesh({side - 1, side - 1}));
  Measure(
      "load-grid-shifted", scale, num_chunks, repeat,
      [&] { return FindChunks(1, fine, stored); }, report);
  Measure(
      "check-grid", scale, num_chunks, repeat,
      [&] { return CheckCoverages(1, shape, stored); }, report);
}

int64_t ReadFlag(int argc, char** argv, absl::string_view prefix,
                 int64_t value) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (!absl::ConsumePrefix(&text, prefix)) continue;
    DCP_CHECK(absl::SimpleAtoi(text, &value) && value >= 1 && value <= 1000,
              argv[i], " is not 1 to 1000");
  }
  return value;
}

void Main(int argc, char** argv) {
  const int64_t scale = ReadFlag(argc, argv, "--scale=", 1);
  const auto repeat = static_cast<int>(ReadFlag(argc, argv, "--repeat=", 5));
  std::vector<std::string> report;
  MeasureTensors(scale, repeat, report);
  MeasureGrid(scale, repeat, report);
  std::printf("[\n%s\n]\n", absl::StrJoin(report, ",\n").c_str());
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  dcp::Main(argc, argv);
  return 0;
}
