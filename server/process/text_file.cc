// SPDX-License-Identifier: Apache-2.0

#include "server/process/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace dcp::server {

absl::StatusOr<std::string> ReadTextFile(const std::string& path,
                                         uint32_t* mode) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  // With O_NONBLOCK, opening a FIFO does not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse(strerror(errno));
  const absl::Cleanup closer = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return refuse(strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("is not a file");
  if (mode != nullptr) *mode = info.st_mode;
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxTextFileBytes) return refuse("exceeds 1 MiB");
  }
}

}  // namespace dcp::server
