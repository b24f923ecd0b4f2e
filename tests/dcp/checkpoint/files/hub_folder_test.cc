// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/hub_folder.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "dcp/checkpoint/convert/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::BytesOf;
using ::dcp::testing::Disk;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A model's folder as the hub's client leaves it, without refs.
std::string WriteHubFolder(const TempDir& dir) {
  dir.WriteFile(
      "models--a--b/blobs/123",
      SafetensorsBytes({{"w", DType::kFloat32, {1}, BytesOf<float>({1})}}));
  dir.WriteFile("models--a--b/blobs/456", "{}");
  dir.WriteFile("models--a--b/snapshots/c0ffee/notes", "");
  const std::pair<std::string, std::string> files[] = {
      {"123", "model.safetensors"}, {"456", "config.json"}};
  for (const auto& [blob, name] : files) {
    const std::string link = dir.Join("models--a--b/snapshots/c0ffee/" + name);
    EXPECT_EQ(symlink(("../../blobs/" + blob).c_str(), link.c_str()), 0);
  }
  return dir.Join("models--a--b");
}

TEST(HubFolder, StandsForItsSnapshot) {
  const TempDir dir;
  const std::string path = WriteHubFolder(dir);
  EXPECT_OK(OpenCheckpoint(path));
  // With the config.
  ASSERT_OK(ConvertCheckpoint(Disk(), path, dir.Join("out"), {}));
  EXPECT_EQ(testing::ReadFile(dir.Join("out/config.json")), "{}");
  dir.WriteFile("models--a--b/snapshots/other/notes", "");
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("one of c0ffee, other")));
  dir.WriteFile("models--a--b/refs/main", "c0ffee");
  EXPECT_OK(OpenCheckpoint(path));
}

TEST(HubFolder, ReportsThatNothingWasDownloaded) {
  const TempDir dir;
  dir.WriteFile("models--a--b/snapshots/x/notes", "");
  EXPECT_THAT(OpenCheckpoint(dir.Join("models--a--b")),
              StatusIs(StatusCode::kNotFound, HasSubstr("snapshots/x")));
}

TEST(HubFolder, NamesOfTheHubAreExplained) {
  EXPECT_THAT(OpenCheckpoint("hf://org/name/model.safetensors"),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("is not read directly"),
                             HasSubstr("hf download org/name --local-dir"))));
  EXPECT_THAT(OpenCheckpoint("meta-llama/Llama-3.2-1B"),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("hf download meta-llama/Llama-3.2-1B")));
  for (const char* path : {"/tmp/no/such", "./no/such", "no_such", "a/b/c"}) {
    EXPECT_THAT(OpenCheckpoint(path).status().message(),
                ::testing::Not(HasSubstr("hf download")))
        << path;
  }
}

}  // namespace
}  // namespace dcp
