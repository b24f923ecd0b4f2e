// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/temp_dir.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"

namespace dcp::testing {

TempDir::TempDir() {
  // Bazel gives each test a scratch folder; outside Bazel the system's is used.
  const char* parent = getenv("TEST_TMPDIR");
  std::string name = absl::StrCat(
      parent != nullptr ? parent
                        : std::filesystem::temp_directory_path().c_str(),
      "/dcp_test_XXXXXX");
  DCP_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  // A failure here can be ignored, because the runner cleans the folder.
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Join(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string TempDir::WriteFile(absl::string_view name,
                               absl::string_view contents) const {
  const std::string path = Join(name);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  DCP_CHECK(!error);
  std::ofstream file(path, std::ios::binary);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  file.close();
  DCP_CHECK(file.good());
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  DCP_CHECK(file.good());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace dcp::testing
