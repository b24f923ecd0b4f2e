// LogText: a value as it stands in a line of log, key=value. Text of a caller
// must not end a line, hide in a terminal or fill a disk. Pure; any thread.
#ifndef SERVER_LOG_TEXT_H_
#define SERVER_LOG_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp::server {

// As it is where that is one word of plain characters; else in quotes with C's
// escapes. At most kMaxLogTextBytes of it.
inline constexpr size_t kMaxLogTextBytes = 1000;
std::string LogText(absl::string_view text);

}  // namespace dcp::server

#endif  // SERVER_LOG_TEXT_H_
