// SPDX-License-Identifier: Apache-2.0
// The main for a fuzz target that runs as a plain test. Each argument is a
// file, or a folder of files; the target gets each file's bytes once, and the
// empty input first. A crash, a sanitizer or a failed DCP_CHECK in the target
// fails the test, and the last line printed names the input.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

bool RunFile(const std::filesystem::path& path) {
  std::printf("input %s\n", path.c_str());
  std::fflush(stdout);  // Must be out before a crash.
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (!file.good()) return false;
  // A separate heap allocation with the exact size, so that AddressSanitizer
  // sees a read past the end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  int num_unreadable = 0;
  int num_inputs = 1;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(argv[i])) {
      for (const std::filesystem::directory_entry& entry :
           std::filesystem::recursive_directory_iterator(argv[i])) {
        if (!entry.is_directory()) files.push_back(entry.path());
      }
    } else {
      files.emplace_back(argv[i]);
    }
    for (const std::filesystem::path& path : files) {
      ++num_inputs;
      if (!RunFile(path)) {
        std::printf("cannot read %s\n", path.c_str());
        ++num_unreadable;
      }
    }
  }
  std::printf("%d inputs\n", num_inputs);
  return num_unreadable == 0 ? 0 : 1;
}
