// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dcp/io/file_systems/routed_file_system.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Clean : public ::testing::Test {
 protected:
  Clean()
      : fs_(NewRoutedFileSystem(std::make_unique<SimStorage>(),
                                server_.Opener())) {
    server_.PutBytes("run/__0_0.abc.distcp", "data");
  }

  // The output of `clean` with these words after it.
  std::string Run(std::vector<std::string> words, ExitCode expected) {
    words.insert(words.begin(), "clean");
    std::ostringstream out;
    std::ostringstream err;
    EXPECT_EQ(RunCommand(words, {.out = out, .err = err}, *fs_, {}), expected);
    return out.str() + err.str();
  }

  SimObjectServer server_;  // all objects are from 1970
  std::unique_ptr<FileSystem> fs_;
};

TEST_F(Clean, ListsAndRemovesOnlyOnRequest) {
  EXPECT_THAT(Run({"s3://bucket/run"}, kExitDone),
              AllOf(HasSubstr("1970-01-01"), HasSubstr("4 B"),
                    HasSubstr("s3://bucket/run/__0_0.abc.distcp"),
                    HasSubstr("1 to remove; --yes removes them")));
  EXPECT_EQ(server_.num_objects(), 1u);
  EXPECT_THAT(
      Run({"s3://bucket/run", "--json"}, kExitDone),
      AllOf(HasSubstr("\"removed\":false"), HasSubstr("\"num_bytes\":4")));
  EXPECT_THAT(Run({"s3://bucket/run", "--yes"}, kExitDone),
              HasSubstr("removed 1"));
  EXPECT_EQ(server_.num_objects(), 0u);
  EXPECT_THAT(Run({"s3://bucket/run"}, kExitDone),
              HasSubstr("nothing to remove"));
}

TEST_F(Clean, LeavesRecentFilesAndRefusesLocalPaths) {
  EXPECT_THAT(Run({"s3://bucket/run", "--older-than", "1000000"}, kExitDone),
              HasSubstr("nothing to remove"));
  EXPECT_THAT(Run({"s3://bucket/run", "--older-than", "40000d"}, kExitDone),
              HasSubstr("nothing to remove"));
  EXPECT_THAT(Run({"s3://bucket/run", "--older-than", "0"}, kExitDone),
              HasSubstr("1 to remove"));
  EXPECT_THAT(Run({"s3://bucket/run", "--older-than", "30m"}, kExitDone),
              HasSubstr("1 to remove"));
  EXPECT_THAT(Run({"s3://bucket/run", "--older-than", "soon"}, kExitUsage),
              HasSubstr("30m, 12h or 7d"));
  EXPECT_THAT(Run({"/run"}, kExitUsage), HasSubstr("not in an object store"));
}

}  // namespace
}  // namespace dcp::tools
