// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/checkpoint/save/save_world.h"

#include <utility>

#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {

uint64_t NumFilled(const SampleState& state) {
  uint64_t num_bytes = 0;
  for (const auto& source : state.sources()) {
    num_bytes += source->num_filled_bytes();
  }
  return num_bytes;
}

size_t NumPending(const SampleState& state) {
  size_t num = 0;
  for (const auto& source : state.sources()) num += source->num_pending();
  return num;
}

namespace {

void ExpectSound(FileSystem& fs, absl::string_view path) {
  VerifyOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto report = VerifyCheckpoint(fs, path, std::move(options));
  ASSERT_OK(report);
  for (const VerifyFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.problem;
  }
}

}  // namespace

void ExpectHolds(FileSystem& fs, absl::string_view path,
                 const std::vector<const SampleTensor*>& tensors) {
  ExpectSound(fs, path);
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(fs, path, {}));
  std::vector<std::unique_ptr<MemorySink>> sinks;
  std::vector<LoadTensor> wanted;
  for (const SampleTensor* tensor : tensors) {
    sinks.push_back(std::make_unique<MemorySink>(tensor->bytes.size()));
    wanted.push_back({.fqn = tensor->fqn,
                      .dtype = tensor->dtype,
                      .shape = tensor->shape,
                      .box = WholeBox(tensor->shape),
                      .sink = sinks.back().get()});
  }
  ASSERT_OK(Load(fs, *checkpoint, wanted, {.memory_bytes = kMinMemoryBytes}));
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(sinks[i]->bytes() == tensors[i]->bytes) << tensors[i]->fqn;
  }
}

}  // namespace dcp::testing
