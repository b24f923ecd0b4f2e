// SPDX-License-Identifier: Apache-2.0
// Measures a plan's cost for the real shapes in DeepSeek V3: 45,395 tensors
// with 671 billion parameters in 5 GB files, which become other tensors. The
// code is the same as in dcp-convert; files have heads and sizes, but no
// payload. Seconds are processor seconds.
//
//   shapes_bench --to=torchtitan
//
// Prints JSON.
#include <stdio.h>

#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/convert/prepare_conversion.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/maps/builtin_mappings.h"
#include "tests/bench/phantom_storage.h"
#include "tests/bench/process_memory.h"
#include "tests/testing/deepseek_shapes.h"

ABSL_FLAG(std::string, to, "torchtitan", "side of the mapping of deepseek-v3");

namespace dcp::bench {
namespace {

constexpr char kSource[] = "/source";
constexpr uint64_t kShardBytes = 5'000'000'000;

void Check(const absl::Status& status) {
  DCP_CHECK(status.ok(), status.message());
}

// This process's processor time, without other processes' on the machine.
double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// The model's files on the simulated storage.
class Source {
 public:
  explicit Source(PhantomStorage& storage)
      : files_(storage, "/", {}, DirectMode::kOff, true) {
    for (const MappingTensor& shape : testing::DeepSeekV3Tensors()) {
      TensorEntry& tensor = tensors_.emplace_back();
      tensor.dtype = shape.dtype;
      tensor.shape = shape.shape;
      tensor.boxes = {WholeBox(tensor.shape)};
      entries_.push_back({.fqn = shape.name,
                          .path = {},
                          .tensor = &tensor,
                          .dtype = tensor.dtype});
    }
    absl::StatusOr<Output> output =
        BuildSafetensorsDirectory(entries_, files_, kShardBytes);
    Check(output.status());
    output_ = *std::move(output);
    Check(storage.MakeDirectory(kSource));
    for (OutputFile& file : output_.files) {
      num_bytes_ += file.layout.size();
      Check(storage.AddImage(JoinPath(kSource, file.layout.name()), file));
    }
    Check(WriteFile(storage, JoinPath(kSource, output_.index_name),
                    output_.index()));
  }

  uint64_t num_bytes() const { return num_bytes_; }

 private:
  SourceFiles files_;
  std::deque<TensorEntry> tensors_;
  std::vector<OutputEntry> entries_;
  Output output_;
  uint64_t num_bytes_ = 0;
};

struct Figures {
  std::string to;
  size_t num_sources = 0;
  size_t num_tensors = 0;
  size_t num_pieces = 0;
  double open_seconds = 0;    // without a mapping
  double map_seconds = 0;     // names and shapes alone
  double output_seconds = 0;  // the rest
  double seconds = 0;         // all of it
  int64_t peak_bytes = 0;     // that this adds to the process
};

Figures Measure(PhantomStorage& storage, const std::string& to) {
  Figures figures{.to = to};
  double begin = ProcessorSeconds();
  {
    const auto source = Checkpoint::Open(storage, kSource, {});
    Check(source.status());
    figures.open_seconds = ProcessorSeconds() - begin;
  }
  absl::StatusOr<Mapping> mapping = BuiltinMapping("deepseek-v3");
  Check(mapping.status());
  MapSpec spec{
      .mapping = *std::move(mapping),
      .options = {
          .from = "hf", .to = to, .config = testing::DeepSeekV3Config()}};
  {
    const std::vector<MappingTensor> sources = testing::DeepSeekV3Tensors();
    begin = ProcessorSeconds();
    const auto mapped = spec.mapping.Map(sources, spec.options);
    Check(mapped.status());
    figures.map_seconds = ProcessorSeconds() - begin;
    figures.num_sources = sources.size();
    figures.num_tensors = mapped->tensors.size();
    figures.num_pieces = mapped->pieces.size();
  }
  ConvertOptions options;
  options.to = Format::kDcp;
  options.open.map = std::make_shared<const MapSpec>(std::move(spec));
  ForgetPeak();
  const int64_t before = PrivateBytes();
  begin = ProcessorSeconds();
  const absl::StatusOr<Conversion> conversion = PrepareConversion(
      storage, kSource, absl::StrCat("/", to), options, nullptr);
  Check(conversion.status());
  figures.seconds = ProcessorSeconds() - begin;
  figures.peak_bytes = PeakPrivateBytes() - before;
  figures.output_seconds =
      figures.seconds - figures.open_seconds - figures.map_seconds;
  return figures;
}

int Main() {
  PhantomStorage storage;
  const Source source(storage);
  const Figures one = Measure(storage, absl::GetFlag(FLAGS_to));
  absl::PrintF(
      R"({"to": "%s", "num_bytes": %d, "num_sources": %d, "num_tensors": %d, )"
      R"("num_pieces": %d, "open_seconds": %f, "map_seconds": %f, )"
      R"("output_seconds": %f, "seconds": %f, "peak_bytes": %d})"
      "\n",
      one.to, source.num_bytes(), one.num_sources, one.num_tensors,
      one.num_pieces, one.open_seconds, one.map_seconds, one.output_seconds,
      one.seconds, one.peak_bytes);
  fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace dcp::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return dcp::bench::Main();
}
