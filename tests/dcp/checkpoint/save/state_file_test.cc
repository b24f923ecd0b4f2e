// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/state_file.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tensors with several blocks, with one element and with none.
void FillTensors(SampleState& state) {
  state.Add(SampleTensor("model.small", DType::kUInt8, {3}));
  state.Add(SampleTensor("model.large", DType::kFloat32, {1500, 1000}));
  state.Add(SampleTensor("model.none", DType::kFloat32, {0, 4}));
  state.Add(SampleTensor("scalar", DType::kFloat64, {}));
}

void AddObjects(SampleState& state) {
  state.AddObject("step", Value::Int(7));
  state.AddObject("note", state.arena().Str("n"));
}

absl::Status WriteTo(FileSystem& fs, const std::string& path,
                     const SaveState& state, const SaveOptions& options = {}) {
  const auto file = StateFile::Plan(fs, path, state);
  if (!file.ok()) return file.status();
  return (*file)->Write(options);
}

std::vector<std::string> NamesIn(FileSystem& fs, absl::string_view path) {
  std::vector<std::string> names;
  const auto entries = fs.List(path);
  EXPECT_OK(entries);
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

TEST(StateFile, HoldsTheSameAsASaveToADirectory) {
  for (const std::string path :
       {"/d/x.pt", "/d/x.pth", "/d/x.bin", "/d/x.safetensors"}) {
    SCOPED_TRACE(path);
    SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
    ASSERT_OK(fs.MakeDirectory("/d"));
    SampleState state;
    FillTensors(state);
    if (path != "/d/x.safetensors") AddObjects(state);
    SingleProcessCoordinator coordinator;
    ASSERT_OK(Save(fs, "/saved", state.state(), coordinator, {}));
    ASSERT_OK(
        WriteTo(fs, path, state.state(), {.memory_bytes = kMinMemoryBytes}));
    EXPECT_THAT(NamesIn(fs, "/d"), ElementsAre(path.substr(3)));
    const auto report = DiffCheckpoints(fs, "/saved", path, {});
    ASSERT_OK(report);
    EXPECT_THAT(report->findings, IsEmpty());
    EXPECT_EQ(report->num_tensors_equal, 4u);
    const auto verified = VerifyCheckpoint(fs, path, {});
    ASSERT_OK(verified);
    EXPECT_THAT(verified->findings, IsEmpty());
  }
}

TEST(StateFile, ReportsTheOrder) {
  SimStorage fs;
  SampleState state;
  FillTensors(state);
  const auto torch = StateFile::Plan(fs, "/x.pt", state.state());
  ASSERT_OK(torch);
  EXPECT_THAT((*torch)->order(), ElementsAre(0, 1, 2, 3));
  // Wide types first.
  const auto safetensors = StateFile::Plan(fs, "/x.safetensors", state.state());
  ASSERT_OK(safetensors);
  EXPECT_THAT((*safetensors)->order(), ElementsAre(3, 1, 2, 0));
}

TEST(StateFile, SafetensorsHoldsTensorsOnly) {
  SimStorage fs;
  SampleState state;
  FillTensors(state);
  AddObjects(state);
  EXPECT_THAT(WriteTo(fs, "/x.safetensors", state.state()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("2 values that are not tensors"),
                             HasSubstr("step, note"), HasSubstr(".pt file"))));
  EXPECT_THAT(fs.Stat("/x.safetensors"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(StateFile, ReplacesOnlyCheckpointsOnRequest) {
  SimStorage fs;
  SampleState state;
  FillTensors(state);
  ASSERT_OK(WriteTo(fs, "/x.pt", state.state()));
  EXPECT_THAT(WriteTo(fs, "/x.pt", state.state(), {.overwrite = false}),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_OK(WriteTo(fs, "/x.pt", state.state()));
  ASSERT_OK(WriteFile(fs, "/text.pt", "not a checkpoint"));
  EXPECT_THAT(WriteTo(fs, "/text.pt", state.state()),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(StateFile, KeepsTheOldFileWhenASourceFails) {
  SimStorage fs;
  SampleState old;
  FillTensors(old);
  ASSERT_OK(WriteTo(fs, "/x.pt", old.state()));
  SampleState state;
  state.Add(SampleTensor("a", DType::kFloat32, {1500, 1000}))
      .FailAfter(5 << 20, absl::UnavailableError("a rank died"));
  EXPECT_THAT(WriteTo(fs, "/x.pt", state.state()),
              StatusIs(absl::StatusCode::kUnavailable, "a rank died"));
  const auto checkpoint = Checkpoint::Open(fs, "/x.pt", {});
  ASSERT_OK(checkpoint);
  EXPECT_TRUE((*checkpoint)->Find("model.large").has_value());
  EXPECT_THAT(NamesIn(fs, "/"), ElementsAre("x.pt"));
}

}  // namespace
}  // namespace dcp
