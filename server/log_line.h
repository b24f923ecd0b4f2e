// LogLine: an event, "event=call code=OK", as a line for people or as JSON for
// programs that collect logs. Pure; any thread.
#ifndef SERVER_LOG_LINE_H_
#define SERVER_LOG_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"

namespace dcp::server {

struct LogFormat {
  LogSeverity lowest = LogSeverity::kInfo;  // less is left out
  bool json = false;
};

// With its newline. "2026-01-31T12:00:00.123Z I event=call code=OK", or
// {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"call","code":"OK"}
// where all values are strings, what LogText has quoted without its quotes.
// Text that is not key=value is under "message".
std::string LogLine(LogSeverity severity, absl::string_view event,
                    absl::Time time, const LogFormat& format);

}  // namespace dcp::server

#endif  // SERVER_LOG_LINE_H_
