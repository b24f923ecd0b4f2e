// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/io/object/retried_requests.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// A bar for short work would only flicker; in a log a line is useful only for
// work that takes a while.
constexpr double kBarAfterSeconds = 0.3;
constexpr double kBarEverySeconds = 0.1;
constexpr double kLineEverySeconds = 5;
constexpr double kJsonEverySeconds = 1;
constexpr auto kWakeInterval = std::chrono::milliseconds(100);

constexpr int kMaxBarColumns = 40;
constexpr int kMinBarColumns = 10;

// Clears the line.
constexpr char kClearLine[] = "\r\033[K";

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string FormatRate(const ProgressView& view) {
  return absl::StrCat(FormatBytes(static_cast<uint64_t>(view.bytes_per_second)),
                      "/s");
}

// Rounded down, so that it is not 100 before the end.
int Percent(const ProgressView& view) {
  return static_cast<int>(std::floor(view.fraction() * 100));
}

// The text for the end of a line.
std::string RetriedText(int64_t num_retried) {
  if (num_retried == 0) return "";
  return absl::StrCat(
      ", ", FormatPlural(static_cast<uint64_t>(num_retried), "request"),
      " to a store ", num_retried == 1 ? "is" : "are", " tried again");
}

// The phase's name in JSON.
absl::string_view PhaseName(const PreparationView& view) {
  if (view.on_server) return "server";
  if (view.num_items == 0) return "index";
  return view.num_items_located < view.num_items ? "items" : "plan";
}

// Most preparations end sooner.
constexpr double kPhaseAfterSeconds = 1;

double FirstPrint(ProgressMode mode, bool bar) {
  if (bar) return kBarAfterSeconds;
  return mode == ProgressMode::kJson ? 0 : kLineEverySeconds;
}

double Interval(ProgressMode mode, bool bar) {
  if (bar) return kBarEverySeconds;
  return mode == ProgressMode::kJson ? kJsonEverySeconds : kLineEverySeconds;
}

}  // namespace

void RateMeter::Add(double seconds, uint64_t bytes) {
  latest_ = {seconds, bytes};
  const Sample& last = samples_[(num_samples_ + kNumSamples - 1) % kNumSamples];
  if (num_samples_ > 0 && seconds < last.seconds + kSpacingSeconds) return;
  samples_[num_samples_ % kNumSamples] = latest_;
  ++num_samples_;
}

double RateMeter::bytes_per_second() const {
  if (num_samples_ == 0) return 0;
  const size_t oldest =
      num_samples_ <= kNumSamples ? 0 : num_samples_ % kNumSamples;
  const Sample& first = samples_[oldest];
  const double elapsed = latest_.seconds - first.seconds;
  if (elapsed <= 0 || latest_.bytes < first.bytes) return 0;
  return static_cast<double>(latest_.bytes - first.bytes) / elapsed;
}

double ProgressView::fraction() const {
  if (total_bytes == 0) return 1;
  return std::min(
      1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
}

std::optional<double> ProgressView::eta_seconds() const {
  if (done_bytes >= total_bytes) return 0;
  if (bytes_per_second <= 0) return std::nullopt;
  return static_cast<double>(total_bytes - done_bytes) / bytes_per_second;
}

std::string PhaseText(const PreparationView& view) {
  if (view.on_server) return "waiting for the server";
  std::string text = "planning";
  if (view.num_items == 0) {
    text = "reading the index";
  } else if (view.num_items_located < view.num_items) {
    const uint64_t percent = view.num_items_located * 100 / view.num_items;
    text = absl::StrCat("looking into ", FormatPlural(view.num_items, "item"),
                        ": ", percent, "%");
  }
  return text + RetriedText(view.num_retried);
}

std::string RenderBar(const ProgressView& view, int width) {
  const std::optional<double> eta = view.eta_seconds();
  std::string tail = absl::StrFormat(
      " %3d%%  %s/%s  %s  ETA %s", Percent(view), FormatBytes(view.done_bytes),
      FormatBytes(view.total_bytes), FormatRate(view),
      eta.has_value() ? FormatSeconds(*eta) : "?");
  if (view.num_retried > 0) {
    absl::StrAppend(&tail, "  ", view.num_retried, " retried");
  }
  const int room = width - static_cast<int>(view.label.size()) -
                   static_cast<int>(tail.size()) - 3;
  std::string text = view.label;
  if (room >= kMinBarColumns) {
    const int columns = std::min(room, kMaxBarColumns);
    const int full = static_cast<int>(view.fraction() * columns);
    std::string bar(static_cast<size_t>(full), '=');
    if (full < columns) bar.push_back('>');
    bar.resize(static_cast<size_t>(columns), ' ');
    absl::StrAppend(&text, " [", bar, "]");
  }
  absl::StrAppend(&text, tail);
  // A bar longer than the line would scroll the terminal at each redraw.
  if (text.size() > static_cast<size_t>(std::max(width, 0))) {
    text.resize(static_cast<size_t>(std::max(width, 0)));
  }
  return text;
}

std::string RenderLine(const ProgressView& view) {
  const std::optional<double> eta = view.eta_seconds();
  return absl::StrFormat("%s: %d%%, %s of %s, %s, %s left%s\n", view.label,
                         Percent(view), FormatBytes(view.done_bytes),
                         FormatBytes(view.total_bytes), FormatRate(view),
                         eta.has_value() ? FormatSeconds(*eta) : "?",
                         RetriedText(view.num_retried));
}

std::string RenderJson(const ProgressView& view) {
  const std::optional<double> eta = view.eta_seconds();
  return absl::StrFormat(
      "{\"event\":\"progress\",\"verb\":\"%s\",\"done_bytes\":%d,"
      "\"total_bytes\":%d,\"seconds\":%.3f,\"bytes_per_second\":%.0f,"
      "\"eta_seconds\":%s,\"requests_retried\":%d}\n",
      view.label, view.done_bytes, view.total_bytes, view.seconds,
      view.bytes_per_second,
      eta.has_value() ? absl::StrFormat("%.3f", *eta) : "null",
      view.num_retried);
}

ProgressPrinter::ProgressPrinter(Options options)
    : options_(std::move(options)), next_seconds_(kPhaseAfterSeconds) {}

std::string ProgressPrinter::Prepare(double seconds,
                                     const PreparationView& view) {
  if (options_.mode == ProgressMode::kNone || seconds < next_seconds_) {
    return "";
  }
  next_seconds_ = seconds + Interval(options_.mode, is_bar());
  printed_ = true;
  const std::string line = absl::StrCat(options_.label, ": ", PhaseText(view));
  if (is_bar()) {
    const int width = std::max(options_.width - 1, 0);
    return absl::StrCat(kClearLine, line.substr(0, static_cast<size_t>(width)));
  }
  if (options_.mode != ProgressMode::kJson) return absl::StrCat(line, "\n");
  return absl::StrFormat(
      "{\"event\":\"preparation\",\"verb\":\"%s\",\"phase\":\"%s\","
      "\"items_done\":%d,\"items_total\":%d,\"seconds\":%.3f,"
      "\"requests_retried\":%d}\n",
      options_.label, PhaseName(view), view.num_items_located, view.num_items,
      seconds, view.num_retried);
}

void ProgressPrinter::Begin(uint64_t total_bytes) {
  total_bytes_ = total_bytes;
  next_seconds_ = FirstPrint(options_.mode, is_bar());
}

bool ProgressPrinter::is_bar() const {
  return options_.mode == ProgressMode::kAuto && options_.terminal;
}

std::string ProgressPrinter::Render(const ProgressView& view) const {
  if (is_bar()) {
    // One column less: some terminals wrap when the last one is written.
    return absl::StrCat(kClearLine, RenderBar(view, options_.width - 1));
  }
  return options_.mode == ProgressMode::kJson ? RenderJson(view)
                                              : RenderLine(view);
}

std::string ProgressPrinter::Tick(double seconds, uint64_t done_bytes,
                                  int64_t num_retried) {
  rate_.Add(seconds, done_bytes);
  if (options_.mode == ProgressMode::kNone || seconds < next_seconds_) {
    return "";
  }
  next_seconds_ = seconds + Interval(options_.mode, is_bar());
  printed_ = true;
  return Render({.label = options_.label,
                 .done_bytes = done_bytes,
                 .total_bytes = total_bytes_,
                 .seconds = seconds,
                 .bytes_per_second = rate_.bytes_per_second(),
                 .num_retried = num_retried});
}

std::string ProgressPrinter::Clear() const {
  return is_bar() && printed_ ? kClearLine : "";
}

std::string ProgressPrinter::Finish(double seconds, uint64_t done_bytes) {
  if (is_bar()) return Clear();
  const bool wanted = options_.mode == ProgressMode::kPlain ||
                      options_.mode == ProgressMode::kJson;
  if (!wanted) return "";
  // The last line has the whole transfer's average rate.
  const double rate =
      seconds > 0 ? static_cast<double>(done_bytes) / seconds : 0;
  return Render({.label = options_.label,
                 .done_bytes = done_bytes,
                 .total_bytes = total_bytes_,
                 .seconds = seconds,
                 .bytes_per_second = rate});
}

ProgressDisplay::ProgressDisplay(Console console, std::string label,
                                 ProgressMode mode, Counting counting,
                                 const TransferStats& stats,
                                 const OpenProgress* opening)
    : console_(console),
      mode_(mode),
      counting_(counting),
      stats_(stats),
      opening_(opening),
      start_seconds_(Now()),
      printer_({.label = std::move(label),
                .mode = mode_,
                .terminal = console_.err_is_terminal,
                .width = console_.err_width}) {
  if (mode_ == ProgressMode::kNone) return;
  absl::StatusOr<Thread> thread =
      Thread::Start([this] { Run(stop_.get_token()); });
  // The work goes on without a display if no thread can start.
  if (thread.ok()) thread_ = *std::move(thread);
}

ProgressDisplay::~ProgressDisplay() { Finish(); }

void ProgressDisplay::Start(uint64_t total_bytes) {
  const std::unique_lock<std::mutex> lock(mutex_);
  if (started_) return;
  started_ = true;
  printer_.Begin(total_bytes);
  Print(Tick());
}

void ProgressDisplay::Run(std::stop_token stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, stop, kWakeInterval,
                         [&stop] { return stop.stop_requested(); })) {
    Print(Tick());
  }
}

std::string ProgressDisplay::Tick() {
  if (started_) {
    return printer_.Tick(Seconds(), DoneBytes(), NumRetriedRequests());
  }
  PreparationView view{.on_server = opening_ == nullptr,
                       .num_retried = NumRetriedRequests()};
  if (opening_ != nullptr) {
    view.num_items = opening_->num_items.load(std::memory_order_relaxed);
    view.num_items_located =
        opening_->num_items_located.load(std::memory_order_relaxed);
  }
  return printer_.Prepare(Seconds(), view);
}

void ProgressDisplay::Finish() {
  if (!thread_.has_value()) return;
  stop_.request_stop();
  thread_.reset();  // joins
  // A transfer that failed before it began has no last line.
  Print(started_ ? printer_.Finish(Seconds(), DoneBytes()) : printer_.Clear());
}

uint64_t ProgressDisplay::DoneBytes() const {
  return counting_ == Counting::kReads
             ? stats_.bytes_read.load(std::memory_order_relaxed)
             : stats_.bytes_written.load(std::memory_order_relaxed);
}

double ProgressDisplay::Seconds() const { return Now() - start_seconds_; }

void ProgressDisplay::Print(const std::string& text) {
  if (text.empty()) return;
  console_.err.write(text.data(), static_cast<std::streamsize>(text.size()));
  console_.err.flush();
}

}  // namespace dcp::tools
