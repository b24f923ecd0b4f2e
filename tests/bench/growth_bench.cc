// SPDX-License-Identifier: Apache-2.0
// Measures how planning costs grow with a checkpoint's size. The code is the
// same as in dcp-convert and Save; storage is simulated and files have no
// payload. Prints JSON: for each size, each step's processor seconds and peak
// memory.
//
//   growth_bench --what=chunks --sizes=10000,100000   a checkpoint of 64 ranks
//   growth_bench --what=reshard --sizes=16,1024       ranks, to 3/4 as many
//   growth_bench --what=save --sizes=1,64             ranks that save
//
// Ranks that save are threads in this process. The figures are for rank 0,
// which merges all ranks' plans, and count only rank 0's processor time.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/tensor/placement.h"
#include "tests/bench/phantom_storage.h"
#include "tests/bench/process_memory.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/thread_coordinator.h"

ABSL_FLAG(std::string, what, "chunks", "chunks, reshard or save");
ABSL_FLAG(std::vector<std::string>, sizes, {}, "of chunks, or of ranks");

namespace dcp::bench {
namespace {

constexpr char kSource[] = "/source";
constexpr char kDestination[] = "/out";
constexpr int64_t kRanks = 64;           // in a checkpoint with many chunks
constexpr int64_t kTensorsOfRank = 200;  // in one that is resharded or saved
constexpr int64_t kColumns = 1024;

void Check(const absl::Status& status) {
  DCP_CHECK(status.ok(), status.message());
}

// Processor time for the process or the calling thread, which does not depend
// on other work on the machine.
double ProcessorSeconds(clockid_t clock) {
  timespec time{};
  DCP_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// The steps for one size, as JSON.
class Row {
 public:
  Row(absl::string_view size, absl::string_view unit)
      : text_(absl::StrCat("{\"size\": ", size, ", \"unit\": \"", unit,
                           "\", \"steps\": {")) {}

  // Runs a step and adds the cost.
  template <typename Work>
  void Measure(absl::string_view step, const Work& work) {
    ForgetPeak();
    const int64_t before = PrivateBytes();
    const double begin = ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID);
    work();
    Add(step, ProcessorSeconds(CLOCK_PROCESS_CPUTIME_ID) - begin,
        PeakPrivateBytes() - before);
  }

  void Add(absl::string_view step, double seconds, int64_t peak_bytes) {
    absl::StrAppendFormat(
        &text_, "%s\"%s\": {\"seconds\": %.6f, \"peak_bytes\": %d}",
        is_first_ ? "" : ", ", step, seconds, std::max<int64_t>(peak_bytes, 0));
    is_first_ = false;
  }

  std::string Text() && { return absl::StrCat(text_, "}}"); }

 private:
  std::string text_;
  bool is_first_ = true;
};

// A checkpoint with `num_tensors` tensors, each cut by rows for all ranks.
class Source {
 public:
  Source(PhantomStorage& storage, int64_t num_tensors, int64_t num_ranks)
      : files_(storage, "/", {}, DirectMode::kOff, true),
        num_ranks_(num_ranks) {
    for (int64_t i = 0; i < num_tensors; ++i) {
      TensorEntry& tensor = tensors_.emplace_back();
      tensor.shape = {num_ranks * 16, kColumns};
      tensor.boxes = {WholeBox(tensor.shape)};
      entries_.push_back(
          {.fqn = absl::StrCat("model.layers.", i / 9, ".weight", i % 9),
           .path = {},
           .tensor = &tensor});
    }
  }

  void LayOut() { output_ = OutputByRows(entries_, files_, num_ranks_); }

  void Write(PhantomStorage& storage) {
    Check(storage.MakeDirectory(kSource));
    for (OutputFile& file : output_.files) {
      Check(storage.AddImage(JoinPath(kSource, file.layout.name()), file));
    }
    Check(WriteFile(storage, JoinPath(kSource, ".metadata"), output_.index()));
  }

  std::string Index() { return output_.index(); }

 private:
  SourceFiles files_;
  const int64_t num_ranks_;
  std::deque<TensorEntry> tensors_;
  std::vector<OutputEntry> entries_;
  Output output_;
};

std::string MeasureReshard(Row row, int64_t num_tensors, int64_t num_ranks) {
  PhantomStorage storage;
  Source source(storage, num_tensors, num_ranks);
  row.Measure("lay out", [&] { source.LayOut(); });
  row.Measure("write the index", [&] { source.Index(); });
  source.Write(storage);
  row.Measure("open",
              [&] { Check(Checkpoint::Open(storage, kSource, {}).status()); });
  ConvertOptions options;
  options.to = Format::kDcp;
  options.mesh = *ParseMesh(
      absl::StrCat("shard=", std::max<int64_t>(num_ranks * 3 / 4, 1)));
  row.Measure("open and plan a reshard", [&] {
    Check(PrepareConversion(storage, kSource, kDestination, options, nullptr)
              .status());
  });
  return std::move(row).Text();
}

// Elements that are zero, without memory.
class Zeros final : public TensorSource {
 public:
  absl::Status Fill(uint64_t /*offset*/, MutableByteSpan dst) override {
    std::fill(dst.begin(), dst.end(), uint8_t{0});
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }
};

std::string MeasureSave(Row row, int64_t num_ranks) {
  testing::SimStorage storage;
  struct Cost {
    double seconds = 0;
    int64_t peak_bytes = 0;
  };
  std::vector<Cost> costs(2);  // on rank 0, for the first save and a later one
  const std::vector<absl::Status> done = testing::RunRanks(
      num_ranks, [&](Coordinator& coordinator) -> absl::Status {
        Zeros zeros;
        SaveState state;
        for (int64_t i = 0; i < kTensorsOfRank; ++i) {
          state.tensors.push_back(
              {.fqn = absl::StrCat("model.layers.", i / 9, ".weight", i % 9),
               .shape = {num_ranks, 16},
               .box = {.offsets = {coordinator.rank(), 0}, .sizes = {1, 16}},
               .source = &zeros});
        }
        SavePlanCache cache;
        SaveOptions options;
        options.memory_bytes = kMinMemoryBytes;
        options.plan_cache = &cache;
        for (Cost& cost : costs) {
          if (coordinator.rank() == 0) ForgetPeak();
          const int64_t before = PrivateBytes();
          const double begin = ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID);
          DCP_RETURN_IF_ERROR(
              Save(storage, kDestination, state, coordinator, options));
          if (coordinator.rank() != 0) continue;
          cost = {ProcessorSeconds(CLOCK_THREAD_CPUTIME_ID) - begin,
                  PeakPrivateBytes() - before};
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : done) Check(status);
  row.Add("first save", costs[0].seconds, costs[0].peak_bytes);
  row.Add("later save", costs[1].seconds, costs[1].peak_bytes);
  return std::move(row).Text();
}

std::string Measure(const std::string& what, const std::string& text) {
  int64_t size = 0;
  DCP_CHECK(absl::SimpleAtoi(text, &size) && size > 0, text);
  if (what == "chunks") {
    return MeasureReshard(Row(text, "chunks"), (size + kRanks - 1) / kRanks,
                          kRanks);
  }
  if (what == "reshard") {
    return MeasureReshard(Row(text, "ranks"), kTensorsOfRank, size);
  }
  DCP_CHECK(what == "save", what);
  return MeasureSave(Row(text, "ranks"), size);
}

int Main() {
  const std::string what = absl::GetFlag(FLAGS_what);
  std::string rows;
  for (const std::string& size : absl::GetFlag(FLAGS_sizes)) {
    absl::StrAppend(&rows, rows.empty() ? "" : ",\n ", Measure(what, size));
  }
  absl::PrintF("[%s]\n", rows);
  return 0;
}

}  // namespace
}  // namespace dcp::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return dcp::bench::Main();
}
