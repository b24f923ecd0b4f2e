// SPDX-License-Identifier: Apache-2.0
// A directory that lives as long as its object: created empty below the test
// runner's scratch folder, removed with everything in it by the destructor. It
// is not a simulated disk: tests of faults use SimStorage. One thread; failures
// to create or fill it are DCP_CHECKs, because a test without its directory
// proves nothing.

#ifndef TESTS_TESTING_TEMP_DIR_H_
#define TESTS_TESTING_TEMP_DIR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  // Absolute, without a slash at the end.
  const std::string& path() const { return path_; }

  // path() and `name` joined. Creates nothing.
  std::string Join(absl::string_view name) const;

  // Writes `contents` to Join(name), creating the folders that are missing, and
  // returns that path.
  std::string WriteFile(absl::string_view name,
                        absl::string_view contents) const;

 private:
  std::string path_;
};

// The whole contents of the file at `path`, which must exist.
std::string ReadFile(const std::string& path);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_TEMP_DIR_H_
