// SPDX-License-Identifier: Apache-2.0
// The checkpoints that PyTorch itself wrote (tests/golden), and their contents.
// A test that uses them has //tests/golden as data and runs in the root of its
// runfiles. One thread; a file that is absent or malformed is a DCP_CHECK.
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
  std::string path;  // of the checkpoint, for CopyGolden
  std::string kind;  // dcp, dcp-safetensors-items, hf, pt
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, std::string> objects;  // as JSON, booleans as texts
  // Tensors of which only the SHA-256 is known: those of single layers.
  std::map<std::string, std::string> unstacked;
};

// The cases of every version, sorted by name.
std::vector<GoldenCase> GoldenCases();
GoldenCase ReadGoldenCase(absl::string_view name);

// `value` as canon() in tests/interop/values.py writes it, for the kinds of
// values in golden files; booleans as texts.
std::string Canonical(const Value& value);

// Copies the file or directory tests/golden/`path` below `dir` and returns its
// new path. In runfiles the originals are symbolic links, which a checkpoint's
// directory may not contain.
std::string CopyGolden(const TempDir& dir, absl::string_view path);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_GOLDEN_H_
