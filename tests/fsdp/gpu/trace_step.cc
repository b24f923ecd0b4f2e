// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/trace_step.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/report.h"
#include "tests/fsdp/gpu/small_training.h"
#include "torch/csrc/autograd/profiler_kineto.h"

namespace fsdp::testing {
namespace {

namespace profiler = torch::autograd::profiler;
using Json = nlohmann::json;
// Begin and end, in nanoseconds.
using Span = std::pair<int64_t, int64_t>;

constexpr int64_t kWarmUpSteps = 3;
constexpr int64_t kTracedSteps = 2;

std::unique_ptr<profiler::ProfilerResult> Profile(const CheckDevice& device,
                                                  SmallTraining& training) {
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(
      torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
  for (int64_t step = 0; step < kTracedSteps; ++step) training.Step();
  device.Synchronize();
  return profiler::disableProfiler();
}

// The work on the device, by stream, in order of time.
std::map<int64_t, std::vector<Span>> SpansByStream(
    const profiler::ProfilerResult& profile) {
  std::map<int64_t, std::vector<Span>> streams;
  for (const profiler::KinetoEvent& event : profile.events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    const auto begin = static_cast<int64_t>(event.startNs());
    streams[event.deviceResourceId()].emplace_back(
        begin, begin + static_cast<int64_t>(event.durationNs()));
  }
  for (auto& [stream, spans] : streams) std::sort(spans.begin(), spans.end());
  return streams;
}

int64_t Total(const std::vector<Span>& spans) {
  int64_t total = 0;
  for (const auto& [begin, end] : spans) total += end - begin;
  return total;
}

// For how long two streams were busy at once. Spans on one stream do not
// overlap.
int64_t Overlap(const std::vector<Span>& a, const std::vector<Span>& b) {
  int64_t total = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    total += std::max<int64_t>(0, std::min(a[i].second, b[j].second) -
                                      std::max(a[i].first, b[j].first));
    a[i].second < b[j].second ? ++i : ++j;
  }
  return total;
}

// The stream that is busy longest computes; the others communicate.
void MeasureTracedOverlap(const profiler::ProfilerResult& profile,
                          StepResult& result) {
  const std::map<int64_t, std::vector<Span>> streams = SpansByStream(profile);
  const auto compute = std::max_element(
      streams.begin(), streams.end(), [](const auto& a, const auto& b) {
        return Total(a.second) < Total(b.second);
      });
  int64_t other = 0;
  int64_t hidden = 0;
  for (auto it = streams.begin(); it != streams.end(); ++it) {
    if (it == compute) continue;
    other += Total(it->second);
    hidden += Overlap(it->second, compute->second);
  }
  result.figures["num_streams"] = streams.size();
  result.figures["other_streams_seconds"] = static_cast<double>(other) * 1e-9;
  result.figures["overlapped_seconds"] = static_cast<double>(hidden) * 1e-9;
  result.Expect(hidden > 0, "nothing ran while the device computed");
}

// The row names in the engine's own trace, each once.
std::set<std::string> TraceRows(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> rows;
  const Json trace = Json::parse(file);
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") rows.insert(event["cat"]);
  }
  return rows;
}

}  // namespace

StepResult CheckTrace(const CheckDevice& device, const std::string& folder) {
  StepResult result;
  // Large enough for kernels that take longer than it takes to start them.
  SmallTrainingOptions options;
  if (device.is_cuda()) {
    options.batch = 8;
    options.length = 512;
    options.sizes = {.dim = 1024, .num_layers = 8, .ffn_dim = 2816};
  }
  SmallTraining training(device, options);
  training.Train(kWarmUpSteps);

  const std::string own = absl::StrCat(folder, "/fsdp_trace.json");
  set_tracing(*training.model(), true);
  training.Train(1);
  set_tracing(*training.model(), false);
  write_trace(*training.model(), own);
  const std::set<std::string> rows = TraceRows(own);
  result.figures["rows"] = rows;
  result.Expect(rows.contains("all-gather"),
                "the engine's trace has no row of all-gathers");
  // On a GPU a stream waits for reductions, and not the thread that traces.
  result.Expect(device.is_cuda() || rows.contains("reduce-scatter"),
                "the engine's trace has no row of reduce-scatters");
  result.figures["prefetched"] = step_report(*training.model()).num_prefetched;

  const std::unique_ptr<profiler::ProfilerResult> profile =
      Profile(device, training);
  result.Expect(!profile->events().empty(), "the profile has no events");
  if (device.is_cuda()) MeasureTracedOverlap(*profile, result);
  profile->save(absl::StrCat(folder, "/profile.json"));
  return result;
}

}  // namespace fsdp::testing
