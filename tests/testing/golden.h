// The checkpoints that PyTorch itself wrote (tests/golden), and what each of
// them holds. A test that uses them has //tests/golden as data and runs in the
// root of its runfiles. One thread; whatever is absent or malformed there is a
// DCP_CHECK.
#ifndef TESTS_TESTING_GOLDEN_H_
#define TESTS_TESTING_GOLDEN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/tensor/box.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

struct GoldenTensor {
  std::string dtype;  // as torch calls it
  Dims shape;
  std::string bytes;  // row-major, little-endian
};

// One <case>.expected.json.
struct GoldenCase {
  std::string name;  // "torch-2.4/sharded"
  std::string path;  // of the checkpoint, likewise: CopyGolden takes it
  std::string kind;  // dcp, dcp-safetensors-items, hf, pt
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, std::string> objects;  // as JSON, booleans as texts
};

// Of every version, sorted by name.
std::vector<GoldenCase> GoldenCases();
GoldenCase ReadGoldenCase(absl::string_view name);

// Copies the file or directory tests/golden/`path` below `dir` and returns
// where it is then. In runfiles the originals are symbolic links, which a
// checkpoint's directory may not contain.
std::string CopyGolden(const TempDir& dir, absl::string_view path);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_GOLDEN_H_
