// SPDX-License-Identifier: Apache-2.0
// LogText: formats a value for a log line of key=value pairs. A caller's text
// must not end the line, hide in a terminal or fill the disk. Pure; any thread.
#ifndef SERVER_PROCESS_LOG_TEXT_H_
#define SERVER_PROCESS_LOG_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp::server {

// Whether `text` is a number as JSON writes it.
bool IsJsonNumber(absl::string_view text);

// The text itself if it is one word of plain characters and no number;
// otherwise in quotes with C's escapes. Cut after kMaxLogTextBytes.
inline constexpr size_t kMaxLogTextBytes = 1000;
std::string LogText(absl::string_view text);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LOG_TEXT_H_
