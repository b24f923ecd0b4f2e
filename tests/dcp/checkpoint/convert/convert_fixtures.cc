// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/checkpoint/convert/convert_fixtures.h"

#include <memory>

#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {

void SaveAll(FileSystem& fs, absl::string_view path,
             const std::vector<SampleTensor>& tensors) {
  SampleState state;
  for (const SampleTensor& tensor : tensors) state.Add(tensor);
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, path, state.state(), coordinator, {}));
}

std::vector<SampleTensor> SmallModel() {
  return {SampleTensor("a", DType::kFloat32, {8, 6}),
          SampleTensor("b", DType::kBFloat16, {5, 3, 2}),
          SampleTensor("c", DType::kInt64, {})};
}

void ExpectSame(FileSystem& fs, absl::string_view a, absl::string_view b) {
  const auto report = DiffCheckpoints(fs, a, b, {});
  ASSERT_OK(report);
  for (const DiffFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.in_a << " and "
                  << finding.in_b;
  }
  const auto verified = VerifyCheckpoint(fs, b, {});
  ASSERT_OK(verified);
  EXPECT_EQ(verified->findings.size(), 0u);
}

std::string LoadBytes(FileSystem& fs, absl::string_view path,
                      const std::string& fqn, DType dtype, const Dims& shape) {
  auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  if (!checkpoint.ok()) return "";
  MemorySink sink(static_cast<uint64_t>(Volume(shape)) * ElementSize(dtype));
  EXPECT_OK(Load(fs, **checkpoint,
                 {{.fqn = fqn,
                   .dtype = dtype,
                   .shape = shape,
                   .box = WholeBox(shape),
                   .sink = &sink}},
                 {}));
  return sink.bytes();
}

SafetensorsMetadata MetadataOf(FileSystem& fs, absl::string_view path) {
  const auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  return checkpoint.ok() ? (*checkpoint)->metadata() : SafetensorsMetadata();
}

void WriteSmallSafetensors(FileSystem& fs, absl::string_view path,
                           absl::string_view tensor,
                           const SafetensorsMetadata& metadata) {
  ASSERT_OK(WriteFile(
      fs, path,
      SafetensorsBytes({{std::string(tensor), DType::kUInt8, {2}, "ab"}},
                       metadata)));
}

}  // namespace dcp::testing
