// SPDX-License-Identifier: Apache-2.0
// One log line per event, key=value, to a sink that the program may replace.
// Only checkpoint, server and tools log; the layers below return their results.
// Any thread: lines never mix.
#ifndef DCP_BASE_LOG_H_
#define DCP_BASE_LOG_H_

#include <sstream>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"

namespace dcp {

enum class LogSeverity { kInfo, kWarning, kError };

// Takes a line without the newline. Called with a lock held: it must not log.
using LogSink = absl::AnyInvocable<void(LogSeverity, absl::string_view line)>;

// Replaces the sink, which at first writes "I|W|E line" to stderr.
void SetLogSink(LogSink sink);

namespace internal {

class LogLine {
 public:
  explicit LogLine(LogSeverity severity) : severity_(severity) {}
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  LogSeverity severity_;
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace dcp

// DCP_LOG(kInfo) << "event=save path=" << path;
#define DCP_LOG(severity) \
  ::dcp::internal::LogLine(::dcp::LogSeverity::severity).stream()

#endif  // DCP_BASE_LOG_H_
