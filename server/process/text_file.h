// SPDX-License-Identifier: Apache-2.0
// ReadTextFile: reads a whole file that the operator provides: options, tokens,
// certificates. Blocking; any thread.
#ifndef SERVER_PROCESS_TEXT_FILE_H_
#define SERVER_PROCESS_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace dcp::server {

// Such files have a few kilobytes; a larger one must be something else.
inline constexpr uint64_t kMaxTextFileBytes = uint64_t{1} << 20;

// InvalidArgument with path and reason, also if the file is not regular or is
// larger than kMaxTextFileBytes. `mode`, if not null, is set to st_mode.
absl::StatusOr<std::string> ReadTextFile(const std::string& path,
                                         uint32_t* mode = nullptr);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_TEXT_FILE_H_
