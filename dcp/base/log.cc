// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/log.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"

namespace dcp {
namespace {

ABSL_CONST_INIT absl::Mutex sink_mutex(absl::kConstInit);

// Never destroyed, so that a line logged during exit has a place to go.
LogSink& Sink() {
  static LogSink& sink =
      *new LogSink([](LogSeverity severity, absl::string_view line) {
        static constexpr char kLetters[] = {'I', 'W', 'E'};
        std::fprintf(stderr, "%c %.*s\n", kLetters[static_cast<int>(severity)],
                     static_cast<int>(line.size()), line.data());
      });
  return sink;
}

}  // namespace

void SetLogSink(LogSink sink) {
  absl::MutexLock lock(&sink_mutex);
  Sink() = std::move(sink);
}

internal::LogLine::~LogLine() {
  const std::string line = stream_.str();
  absl::MutexLock lock(&sink_mutex);
  Sink()(severity_, line);
}

}  // namespace dcp
