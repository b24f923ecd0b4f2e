// SPDX-License-Identifier: Apache-2.0
// The tiny models in tests/golden/mappings, and other programs' results for
// them. A test that uses them has //tests/golden:mappings as data and runs in
// the root of its runfiles. One thread; a file that is absent or malformed is a
// DCP_CHECK.
#ifndef TESTS_DCP_MAPPING_GOLDEN_MODELS_H_
#define TESTS_DCP_MAPPING_GOLDEN_MODELS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/dcp/mapping/apply_pieces.h"

namespace dcp::testing {

// The text in MODEL/config.json.
std::string GoldenConfig(absl::string_view model);

// The tensors in MODEL/FILE.safetensors, by name.
std::vector<ArrayTensor> GoldenTensors(absl::string_view model,
                                       absl::string_view file);

// The tensors in the safetensors file `path`, by name.
std::vector<ArrayTensor> TensorsIn(const std::string& path);

// The path to MODEL/FILE, relative to the root of the runfiles.
std::string GoldenPath(absl::string_view model, absl::string_view file);

// The lines in MODEL/FILE.txt: a program's result, without the elements.
std::vector<std::string> GoldenLines(absl::string_view model,
                                     absl::string_view file);

// The same lines for tensors: "NAME F32 [2,3] DIGEST", the first 16 digits of
// the elements' SHA-256.
std::vector<std::string> LinesOf(absl::Span<const ArrayTensor> tensors);

}  // namespace dcp::testing

#endif  // TESTS_DCP_MAPPING_GOLDEN_MODELS_H_
