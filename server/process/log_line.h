// SPDX-License-Identifier: Apache-2.0
// LogLine: formats an event such as "event=call code=OK" as a line for people
// or as JSON for log collectors. Pure; any thread.
#ifndef SERVER_PROCESS_LOG_LINE_H_
#define SERVER_PROCESS_LOG_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"

namespace dcp::server {

struct LogFormat {
  LogSeverity lowest = LogSeverity::kInfo;  // lower severities are left out
  bool json = false;
};

// The line with a newline at the end: "2026-01-31T12:00:00.123Z I event=call
// code=OK" or
// {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"call","code":"OK"}
// In JSON all values are strings, without the quotes of LogText, and text that
// is not key=value goes to "message".
std::string LogLine(LogSeverity severity, absl::string_view event,
                    absl::Time time, const LogFormat& format);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LOG_LINE_H_
