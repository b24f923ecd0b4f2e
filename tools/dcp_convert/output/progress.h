// SPDX-License-Identifier: Apache-2.0
// Shows a long transfer's progress: a bar on a terminal, otherwise a line from
// time to time. ProgressPrinter decides what to print at a given time;
// ProgressDisplay is the thread that runs it during the transfer.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_PROGRESS_H_
#define TOOLS_DCP_CONVERT_OUTPUT_PROGRESS_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "dcp/base/thread.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/pipeline.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/terminal/console.h"

namespace dcp::tools {

// Bytes per second over the last few seconds. Times must not decrease.
class RateMeter {
 public:
  void Add(double seconds, uint64_t bytes);
  // 0 until there are two samples.
  double bytes_per_second() const;

 private:
  struct Sample {
    double seconds = 0;
    uint64_t bytes = 0;
  };
  // A ring of the latest samples, at least kSpacingSeconds apart.
  static constexpr size_t kNumSamples = 16;
  static constexpr double kSpacingSeconds = 0.25;

  std::array<Sample, kNumSamples> samples_;
  size_t num_samples_ = 0;  // added so far
  Sample latest_;
};

// The transfer's state at one moment.
struct ProgressView {
  std::string label;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  double seconds = 0;
  double bytes_per_second = 0;
  int64_t num_retried = 0;  // requests to stores that wait to be tried again

  double fraction() const;                    // 0 to 1
  std::optional<double> eta_seconds() const;  // absent while unknown
};

// The phase before payload moves: the index is read and each item is located,
// which takes a while if there are a million chunks.
struct PreparationView {
  bool on_server = false;  // a server does not report this phase
  uint64_t num_items = 0;  // 0 while the index is read
  uint64_t num_items_located = 0;
  int64_t num_retried = 0;  // as in ProgressView
};

// "waiting for the server", "reading the index", "looking into 1,280,000 items:
// 45%" or "planning"; with retries, ", 3 requests to a store are tried again"
// follows.
std::string PhaseText(const PreparationView& view);

// "convert [=====>    ]  45%  0.92/2.05 GB  1.10 GB/s  ETA 0:01", in at most
// `width` columns and without a newline.
std::string RenderBar(const ProgressView& view, int width);
// "convert: 45%, 920 MB of 2.05 GB, 1.10 GB/s, 1.02 s left\n"; with retries, ",
// 3 requests to a store are tried again" stands before the newline. A bar has
// "3 retried".
std::string RenderLine(const ProgressView& view);
// One JSON object and a newline.
std::string RenderJson(const ProgressView& view);

// Decides what to print, if anything, at a given time. Thread-compatible.
class ProgressPrinter {
 public:
  struct Options {
    std::string label;
    ProgressMode mode = ProgressMode::kAuto;
    bool terminal = false;
    int width = 80;
  };

  explicit ProgressPrinter(Options options);

  // Before Begin: the text for the preparation. Prints nothing in the first
  // second.
  std::string Prepare(double seconds, const PreparationView& view);
  // The transfer begins.
  void Begin(uint64_t total_bytes);
  // `seconds` have passed since the start, and `done_bytes` are done. kAuto
  // prints nothing if the work ends soon.
  std::string Tick(double seconds, uint64_t done_bytes,
                   int64_t num_retried = 0);
  // Erases a bar.
  std::string Clear() const;
  // Erases the bar, or prints the last line.
  std::string Finish(double seconds, uint64_t done_bytes);

 private:
  bool is_bar() const;
  std::string Render(const ProgressView& view) const;

  const Options options_;
  uint64_t total_bytes_ = 0;
  RateMeter rate_;
  double next_seconds_;
  bool printed_ = false;
};

// Prints to the console's err from a thread that wakes about ten times a
// second. One thread makes, starts and finishes it.
class ProgressDisplay {
 public:
  enum class Counting : uint8_t { kReads, kWrites };

  // Shows the preparation's progress until Start; `opening` is null if a server
  // prepares. `stats`, `opening` and the console's streams must outlive it.
  // Time counts from here on, because a server reports the total only after
  // some work is done.
  ProgressDisplay(Console console, std::string label, ProgressMode mode,
                  Counting counting, const TransferStats& stats,
                  const OpenProgress* opening);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // The transfer begins; a second call does nothing.
  void Start(uint64_t total_bytes);
  // Stops printing, and leaves the cursor at the start of an empty line.
  void Finish();

 private:
  void Run(std::stop_token stop);
  std::string Tick();  // under mutex_
  uint64_t DoneBytes() const;
  double Seconds() const;
  void Print(const std::string& text);

  const Console console_;
  const ProgressMode mode_;
  const Counting counting_;
  const TransferStats& stats_;
  const OpenProgress* const opening_;
  const double start_seconds_;
  std::mutex mutex_;
  ProgressPrinter printer_;  // under mutex_
  bool started_ = false;     // under mutex_
  std::condition_variable_any wake_;
  std::stop_source stop_;
  std::optional<Thread> thread_;
};

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_PROGRESS_H_
