// SPDX-License-Identifier: Apache-2.0
// Makes a change that sizes and modification times do not show.
#ifndef TESTS_TESTING_OLD_TIME_H_
#define TESTS_TESTING_OLD_TIME_H_

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp::testing {

// Overwrites the file with `contents` of equal length, and restores the old
// modification time, as touch -r does.
inline void RewriteWithOldTime(const std::string& path,
                               absl::string_view contents) {
  const auto changed = [&] {
    struct stat info = {};
    stat(path.c_str(), &info);
    return info.st_ctim;
  };
  const auto modified = std::filesystem::last_write_time(path);
  const timespec before = changed();
  timespec now = before;
  // The kernel's clock for files has steps of some milliseconds.
  while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .write(contents.data(), static_cast<std::streamsize>(contents.size()));
    std::filesystem::last_write_time(path, modified);
    now = changed();
  }
}

}  // namespace dcp::testing

#endif  // TESTS_TESTING_OLD_TIME_H_
