// SPDX-License-Identifier: Apache-2.0
// Small sources for the tests of conversions, and checks that two checkpoints
// hold the same. A failure counts for the test that calls.
#ifndef TESTS_DCP_CHECKPOINT_CONVERT_CONVERT_FIXTURES_H_
#define TESTS_DCP_CHECKPOINT_CONVERT_CONVERT_FIXTURES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "tests/testing/sample_state.h"

namespace dcp::testing {

// Saves the tensors as a DCP checkpoint of one rank.
void SaveAll(FileSystem& fs, absl::string_view path,
             const std::vector<SampleTensor>& tensors);

// "a", "b" and a scalar, "c".
std::vector<SampleTensor> SmallModel();

// Expects that `a` and `b` are equal and that `b` is sound.
void ExpectSame(FileSystem& fs, absl::string_view a, absl::string_view b);

// The bytes of one tensor of the checkpoint at `path`.
std::string LoadBytes(FileSystem& fs, absl::string_view path,
                      const std::string& fqn, DType dtype, const Dims& shape);

// The __metadata__ of the checkpoint at `path`.
SafetensorsMetadata MetadataOf(FileSystem& fs, absl::string_view path);

// One tensor of two bytes.
void WriteSmallSafetensors(FileSystem& fs, absl::string_view path,
                           absl::string_view tensor,
                           const SafetensorsMetadata& metadata);

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_CONVERT_CONVERT_FIXTURES_H_
