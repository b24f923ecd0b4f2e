// ReadTextFile: a file of an operator's, whole: options, tokens, certificates.
// Blocking; any thread.
#ifndef SERVER_TEXT_FILE_H_
#define SERVER_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace dcp::server {

// Such files have some kilobytes; what is larger is another file.
inline constexpr uint64_t kMaxTextFileBytes = uint64_t{1} << 20;

// InvalidArgument with path and reason, also for what is not a regular file or
// larger than kMaxTextFileBytes. `mode`, if not null, gets its st_mode.
absl::StatusOr<std::string> ReadTextFile(const std::string& path,
                                         uint32_t* mode = nullptr);

}  // namespace dcp::server

#endif  // SERVER_TEXT_FILE_H_
