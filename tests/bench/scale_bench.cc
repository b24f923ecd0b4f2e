// SPDX-License-Identifier: Apache-2.0
// Measures the work that workers share when they convert many terabytes: the
// time for a plan and for the commit, requests, and bytes, with any worker
// count. The code is the same as in dcp-convert; files have no payload. Calls
// wait as long as real storage would make them; reads overlap, and their times
// are added up:
//
//   scale_bench --terabytes=20 --source_ranks=128 --ranks=96
#include <stdio.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/records/work_records.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/plan/pieces.h"
#include "dcp/tensor/placement.h"
#include "tests/bench/phantom_storage.h"

ABSL_FLAG(double, terabytes, 20, "of the checkpoint, in 1e12 bytes");
ABSL_FLAG(uint32_t, layers, 126, "of the model; 9 tensors each, times 3");
ABSL_FLAG(uint32_t, source_ranks, 128, "that wrote the source");
ABSL_FLAG(uint32_t, ranks, 96, "of the destination");
ABSL_FLAG(std::vector<std::string>, workers,
          std::vector<std::string>({"1", "10", "100", "1000"}),
          "numbers of workers");
ABSL_FLAG(double, worker_gbps, 0.8, "what a worker converts in a second, GB");
ABSL_FLAG(double, call_ms, 1, "of the file system, for one call");
ABSL_FLAG(double, store_ms, 20, "of the object store, for one request");
ABSL_FLAG(uint32_t, in_flight, 32, "reads at the same time");
ABSL_FLAG(bool, from_store, false, "the source is in an object store");

namespace dcp::bench {
namespace {

constexpr char kDestination[] = "/out";

// Only this process's, not other processes' on the machine.
double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void Check(const absl::Status& status) {
  DCP_CHECK(status.ok(), status.message());
}

// A language model and Adam: every tensor cut by rows.
class Source {
 public:
  Source(PhantomStorage& storage, const std::string& path)
      : files_(storage, "/", {}, DirectMode::kOff, true) {
    AddTensors();
    output_ = OutputByRows(entries_, files_, absl::GetFlag(FLAGS_source_ranks));
    for (OutputFile& file : output_.files) {
      num_bytes_ += file.layout.size();
      Check(storage.AddImage(JoinPath(path, file.layout.name()), file));
    }
    const std::string index = output_.index();
    index_bytes_ = index.size();
    Check(WriteFile(storage, JoinPath(path, ".metadata"), index));
  }

  size_t num_tensors() const { return entries_.size(); }
  size_t num_chunks() const { return output_.payloads.size(); }
  uint64_t num_bytes() const { return num_bytes_; }
  uint64_t index_bytes() const { return index_bytes_; }

 private:
  // Rows that every mesh cuts evenly enough; elements of four bytes.
  void AddTensors() {
    constexpr int kTensorsOfLayer = 9;
    constexpr int64_t kColumns = 8192;
    const uint32_t num_layers = absl::GetFlag(FLAGS_layers);
    const double rows = absl::GetFlag(FLAGS_terabytes) * 1e12 /
                        (3.0 * num_layers * kTensorsOfLayer * kColumns * 4);
    for (const char* kind : {"model", "exp_avg", "exp_avg_sq"}) {
      for (uint32_t layer = 0; layer < num_layers; ++layer) {
        for (int i = 0; i < kTensorsOfLayer; ++i) {
          TensorEntry& tensor = tensors_.emplace_back();
          tensor.shape = {static_cast<int64_t>(rows), kColumns};
          tensor.boxes = {WholeBox(tensor.shape)};
          entries_.push_back(
              {.fqn = absl::StrCat(kind, ".layers.", layer, ".weight", i),
               .path = {},
               .tensor = &tensor});
        }
      }
    }
  }

  SourceFiles files_;
  std::deque<TensorEntry> tensors_;
  std::vector<OutputEntry> entries_;
  Output output_;
  uint64_t num_bytes_ = 0;
  uint64_t index_bytes_ = 0;
};

// The cost of one part of the work.
struct Cost {
  double processor = 0;  // seconds
  double elapsed = 0;    // seconds, without reads
  PhantomStorage::Counts counts;

  double Waiting() const {
    const double in_flight = absl::GetFlag(FLAGS_in_flight);
    const double reads = static_cast<double>(counts.num_reads);
    const double store_reads = static_cast<double>(counts.num_store_reads);
    return std::max(elapsed - processor, 0.0) +
           (reads * absl::GetFlag(FLAGS_call_ms) +
            store_reads * absl::GetFlag(FLAGS_store_ms)) /
               1000 / in_flight;
  }
  double Total() const { return processor + Waiting(); }
  uint64_t num_requests() const {
    return counts.num_calls + counts.num_store_calls + counts.num_reads +
           counts.num_store_reads;
  }
};

// Begins when it is made.
class Stopwatch {
 public:
  explicit Stopwatch(PhantomStorage& storage) : storage_(storage) {
    storage_.TakeCounts();
  }

  Cost Read() {
    return {.processor = ProcessorSeconds() - processor_,
            .elapsed = absl::ToDoubleSeconds(absl::Now() - begin_),
            .counts = storage_.TakeCounts()};
  }

 private:
  PhantomStorage& storage_;
  const double processor_ = ProcessorSeconds();
  const absl::Time begin_ = absl::Now();
};

class Bench {
 public:
  Bench(PhantomStorage& storage, std::string src)
      : storage_(storage), src_(std::move(src)) {}

  // A worker up to the moment before it moves a first byte.
  Cost Plan(uint32_t index, uint32_t count) {
    std::stop_source stop;
    Cost cost;
    Stopwatch watch(storage_);
    const absl::StatusOr<ShareResult> result = ConvertShare(
        storage_, src_, kDestination, Options(stop.get_token()),
        {.share = {.index = index, .count = count}, .on_begin = [&](uint64_t) {
           cost = watch.Read();
           stop.request_stop();
         }});
    DCP_CHECK(absl::IsCancelled(result.status()), result.status().message());
    return cost;
  }

  // The plan's pieces, and a record for each, as if they had moved.
  Cost WriteRecords() {
    const auto found = WorkRecords::Find(storage_, kDestination);
    Check(found.status());
    WorkRecords records(storage_, found->at(0));
    absl::StatusOr<WorkPlan> plan = records.ReadPlan();
    Check(plan.status());
    plan_ = *std::move(plan);
    std::vector<uint64_t> sizes(plan_.files.size());
    for (const FilePiece& piece : plan_.pieces) {
      sizes[piece.file] =
          std::max(sizes[piece.file], piece.offset + piece.length);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto file = storage_.OpenShared(
          JoinPath(kDestination, plan_.files[i]), sizes[i], DirectMode::kOff);
      Check(file.status());
      Check(storage_.Close(*file));
    }
    Stopwatch watch(storage_);
    for (uint32_t i = 0; i < plan_.pieces.size(); ++i) {
      Check(records.Write(i, MakeRecord(plan_.pieces[i])));
    }
    return watch.Read();
  }

  // The worker that finds all records, without the plan, which all workers
  // make.
  Cost Commit() {
    std::optional<Stopwatch> watch;
    const absl::StatusOr<ShareResult> result =
        ConvertShare(storage_, src_, kDestination, Options({}),
                     {.share = {.index = 0, .count = 1},
                      .on_begin = [&](uint64_t num_bytes) {
                        DCP_CHECK(num_bytes == 0);
                        watch.emplace(storage_);
                      }});
    Check(result.status());
    DCP_CHECK(result->has_committed);
    return watch->Read();
  }

  const WorkPlan& plan() const { return plan_; }

  // The largest share, divided by the mean share.
  double Imbalance(uint32_t count) const {
    uint64_t total = 0;
    uint64_t largest = 0;
    for (uint32_t k = 0; k < count; ++k) {
      uint64_t bytes = 0;
      for (const uint32_t piece :
           SharePieces(plan_.pieces, {.index = k, .count = count})) {
        bytes += plan_.pieces[piece].length;
      }
      total += bytes;
      largest = std::max(largest, bytes);
    }
    return static_cast<double>(largest) * count / static_cast<double>(total);
  }

 private:
  static ConvertOptions Options(std::stop_token stop) {
    ConvertOptions options;
    options.to = Format::kDcp;
    options.mesh =
        *ParseMesh(absl::StrCat("shard=", absl::GetFlag(FLAGS_ranks)));
    options.stop = std::move(stop);
    return options;
  }

  PieceRecord MakeRecord(const FilePiece& piece) const {
    PieceRecord record;
    record.bytes = piece.length;
    record.milliseconds = 1;
    record.host = "node07";
    const uint32_t num_parts = piece.end_part - piece.first_part;
    record.written.crcs.assign(num_parts, 0x12345678);
    // Every second part is an archive's end, without payload.
    for (uint32_t i = 0; i < num_parts; i += 2) {
      record.written.digests.push_back({.file = plan_.files[piece.file],
                                        .offset = piece.offset + i,
                                        .length = 1,
                                        .digest = 0x123456789abcdef0});
    }
    return record;
  }

  PhantomStorage& storage_;
  const std::string src_;
  WorkPlan plan_;
};

absl::Duration Latency(const absl::Flag<double>& milliseconds) {
  return absl::Milliseconds(absl::GetFlag(milliseconds));
}

void Report(PhantomStorage& storage, const Source& source, Bench& bench) {
  storage.SetLatency(Latency(FLAGS_call_ms), Latency(FLAGS_store_ms));
  struct Row {
    uint32_t count;
    Cost plan;
  };
  std::vector<Row> rows;
  for (const std::string& text : absl::GetFlag(FLAGS_workers)) {
    Row row{};
    DCP_CHECK(absl::SimpleAtoi(text, &row.count) && row.count > 0, text);
    row.plan = bench.Plan(row.count / 2, row.count);
    rows.push_back(row);
  }
  storage.SetLatency({}, {});
  const Cost records = bench.WriteRecords();
  storage.SetLatency(Latency(FLAGS_call_ms), Latency(FLAGS_store_ms));
  std::vector<double> imbalances;
  for (const Row& row : rows) imbalances.push_back(bench.Imbalance(row.count));
  const Cost commit = bench.Commit();
  const size_t num_pieces = bench.plan().pieces.size();
  absl::PrintF(
      "%.1f TB, %d tensors, %d chunks, index of %.0f MB; %d files, %d pieces\n"
      "records: %.1f MB, %d requests; commit: %.1f s and %d requests, %.1f s "
      "with waiting\n\n",
      static_cast<double>(source.num_bytes()) / 1e12, source.num_tensors(),
      source.num_chunks(), static_cast<double>(source.index_bytes()) / 1e6,
      bench.plan().files.size(), num_pieces,
      static_cast<double>(records.counts.bytes_written) / 1e6,
      records.num_requests(), commit.processor, commit.num_requests(),
      commit.Total());
  absl::PrintF("%7s %9s %10s %10s %11s %11s %10s %8s %10s\n", "workers",
               "work, s", "plan, s", "requests", "waiting, s", "read, MB",
               "all, GB", "serial", "imbalance");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double bytes = static_cast<double>(source.num_bytes());
    const double work =
        bytes / row.count / absl::GetFlag(FLAGS_worker_gbps) / 1e9;
    const double serial = row.plan.Total() + commit.Total();
    const double read = static_cast<double>(row.plan.counts.bytes_read);
    absl::PrintF("%7d %9.0f %10.2f %10d %11.2f %11.1f %10.2f %7.2f%% %10.3f\n",
                 row.count, work, row.plan.processor, row.plan.num_requests(),
                 row.plan.Waiting(), read / 1e6, read * row.count / 1e9,
                 100 * serial / (serial + work), imbalances[i]);
  }
  fflush(stdout);
}

int Main() {
  PhantomStorage storage;
  const std::string folder = absl::GetFlag(FLAGS_from_store)
                                 ? std::string(PhantomStorage::kStore)
                                 : "/disk";
  const std::string src = JoinPath(folder, "source");
  Check(storage.MakeDirectory(folder));
  Check(storage.MakeDirectory(src));
  const Source source(storage, src);
  Bench bench(storage, src);
  Report(storage, source, bench);
  return 0;
}

}  // namespace
}  // namespace dcp::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return dcp::bench::Main();
}
