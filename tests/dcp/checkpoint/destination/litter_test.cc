// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/litter.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/io/file_systems/routed_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kInvalidArgument;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> LitterPaths(const Litter& litter) {
  std::vector<std::string> paths;
  for (const HiddenFile& upload : litter.uploads) paths.push_back(upload.path);
  for (const StoredFile& file : litter.files) paths.push_back(file.path);
  return paths;
}

class LitterTest : public ::testing::Test {
 protected:
  LitterTest()
      : fs_(NewRoutedFileSystem(std::make_unique<SimStorage>(),
                                server_.Opener())) {
    SaveAll(*fs_, "s3://bucket/run/step-1", SmallModel());
  }

  SimObjectServer server_;
  std::unique_ptr<FileSystem> fs_;
};

TEST_F(LitterTest, FindsFilesThatNoIndexNames) {
  const std::vector<std::string> whole = server_.Keys();
  server_.PutBytes("run/step-1/__0_0.abc.distcp", "dead");
  server_.PutBytes("run/step-1/.digests-abc", "dead");
  server_.PutBytes("run/step-1/notes.txt", "not ours");
  server_.PutBytes("run/step-2/__7_0.abc.distcp", "dead");
  server_.PutBytes("run/ranks/__0_0.distcp", "of __0.metadata");
  server_.PutBytes("run/ranks/__0.metadata", "an index of one rank");
  ASSERT_OK(server_.NewClient()->Begin("run/x.pt", "").status());
  const absl::StatusOr<Litter> litter =
      FindLitter(*fs_, "s3://bucket/run/", INT64_MAX, {});
  ASSERT_OK(litter.status());
  EXPECT_THAT(
      LitterPaths(*litter),
      ElementsAre("s3://bucket/run/x.pt", "s3://bucket/run/step-1/.digests-abc",
                  "s3://bucket/run/step-1/__0_0.abc.distcp",
                  "s3://bucket/run/step-2/__7_0.abc.distcp"));
  EXPECT_THAT(litter->unclear, IsEmpty());
  EXPECT_OK(RemoveLitter(*fs_, *litter, {}));
  EXPECT_EQ(server_.num_uploads(), 0u);
  EXPECT_EQ(server_.num_objects(), whole.size() + 3);
  EXPECT_THAT(LitterPaths(*FindLitter(*fs_, "s3://bucket", INT64_MAX, {})),
              IsEmpty());
}

TEST_F(LitterTest, DigestsBelongToWeights) {
  server_.PutBytes("run/hf/.digests", "of the model");
  server_.PutBytes("run/hf/model.safetensors", "model");
  server_.PutBytes("run/dead/.digests", "of nothing");
  EXPECT_THAT(LitterPaths(*FindLitter(*fs_, "s3://bucket", INT64_MAX, {})),
              ElementsAre("s3://bucket/run/dead/.digests"));
}

TEST_F(LitterTest, KeepsYoungFilesForLivingWriters) {
  server_.PutBytes("run/step-2/__0_0.abc.distcp", "old");
  const int64_t written =
      fs_->Stat("s3://bucket/run/step-2/__0_0.abc.distcp")->modified_ns;
  EXPECT_THAT(LitterPaths(*FindLitter(*fs_, "s3://bucket", written, {})),
              IsEmpty());
  EXPECT_EQ(
      LitterPaths(*FindLitter(*fs_, "s3://bucket", written + 1, {})).size(),
      1u);
}

TEST_F(LitterTest, KeepsADirectoryWithAnUnreadableIndex) {
  server_.PutBytes("run/step-3/__0_0.distcp", "data");
  server_.PutBytes("run/step-3/.metadata", "not a pickle");
  const absl::StatusOr<Litter> litter =
      FindLitter(*fs_, "s3://bucket/run", INT64_MAX, {});
  ASSERT_OK(litter.status());
  EXPECT_THAT(LitterPaths(*litter), IsEmpty());
  EXPECT_THAT(litter->unclear, ElementsAre(HasSubstr("run/step-3: ")));
}

TEST_F(LitterTest, AFileSystemCleansItself) {
  EXPECT_THAT(FindLitter(*fs_, "/run", INT64_MAX, {}).status(),
              StatusIs(kInvalidArgument, HasSubstr("next writer")));
}

}  // namespace
}  // namespace dcp
