// SPDX-License-Identifier: Apache-2.0
// Checkpoints that PyTorch itself wrote (tests/golden), with contents. A test
// that uses them has //tests/golden as data and runs in the runfiles' root. One
// thread; a file that is absent or malformed is a DCP_CHECK.
#ifndef TESTS_TESTING_GOLDEN_H_
#define TESTS_TESTING_GOLDEN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"
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
  std::string path;  // the checkpoint's path, for CopyGolden
  std::string kind;  // dcp, dcp-safetensors-items, hf, pt
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, std::string> objects;  // as JSON, booleans as texts
  // SHA-256 digests of single layers' tensors; nothing else is known of them.
  std::map<std::string, std::string> unstacked;
};

// All versions' cases, sorted by name.
std::vector<GoldenCase> GoldenCases();
GoldenCase ReadGoldenCase(absl::string_view name);

// `value` in the form of canon() in tests/interop/values.py, for the kinds in
// golden files; booleans as texts.
std::string Canonical(const Value& value);

// Copies the file or directory tests/golden/`path` below `dir` and returns the
// new path. In runfiles the originals are symbolic links, which a checkpoint's
// directory may not contain.
std::string CopyGolden(const TempDir& dir, absl::string_view path);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_GOLDEN_H_
