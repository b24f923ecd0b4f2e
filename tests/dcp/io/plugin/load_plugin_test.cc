// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/plugin/load_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kFailedPrecondition;
using ::absl::StatusCode::kInvalidArgument;
using ::absl::StatusCode::kUnimplemented;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFolderVariable[] = "TESSERA_PLUGINS";
constexpr char kLater[] = "libtessera-later.so";

class LoadPluginTest : public ::testing::Test {
 protected:
  ~LoadPluginTest() override { unsetenv(kFolderVariable); }

  const TempDir dir_;
};

TEST_F(LoadPluginTest, NamesTheFoldersAndAdvises) {
  setenv(kFolderVariable, dir_.path().c_str(), 1);
  const std::unique_ptr<FileSystem> fs = NewDefaultFileSystem();
  for (const char* const url :
       {"gs://bucket/f", "abfs://container/f",
        "abfss://container@account.dfs.core.windows.net/f",
        "hdfs://node:8020/f"}) {
    EXPECT_THAT(
        fs->Stat(url).status(),
        StatusIs(kUnimplemented,
                 AllOf(HasSubstr(std::string(url).substr(
                           0, std::string(url).rfind('/'))),
                       HasSubstr("libtessera-arrow.so"), HasSubstr(dir_.path()),
                       HasSubstr("//plugins/arrow"))));
  }
}

TEST_F(LoadPluginTest, LooksOnlyNextToTheProgram) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path folder =
      std::filesystem::path(program).parent_path();
  // A library in the working directory would load.
  std::filesystem::copy(std::filesystem::path("tests/dcp/io/plugin") / kLater,
                        dir_.Join("libtessera-here.so"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  for (const char* const set : {"", "unset"}) {
    setenv(kFolderVariable, "", 1);
    if (*set != '\0') unsetenv(kFolderVariable);
    EXPECT_THAT(
        LoadPlugin("libtessera-here.so").status(),
        StatusIs(
            kUnimplemented,
            AllOf(HasSubstr(folder.string()),
                  HasSubstr((folder.parent_path() / "lib/tessera").string()))));
  }
  setenv(kFolderVariable, ".", 1);
  EXPECT_THAT(LoadPlugin("libtessera-here.so").status(),
              StatusIs(kInvalidArgument, HasSubstr("TESSERA_PLUGINS=.")));
  std::filesystem::current_path(before);
}

TEST_F(LoadPluginTest, RefusesAnotherVersionOfTheInterface) {
  const std::string folder =
      std::filesystem::current_path() / "tests/dcp/io/plugin";
  setenv(kFolderVariable, folder.c_str(), 1);
  EXPECT_THAT(LoadPlugin(kLater).status(),
              StatusIs(kFailedPrecondition,
                       HasSubstr(absl::StrCat(
                           folder, "/", kLater, " was made for version ",
                           TESSERA_PLUGIN_ABI_VERSION + 1))));
}

TEST_F(LoadPluginTest, RefusesOtherFiles) {
  setenv(kFolderVariable, dir_.path().c_str(), 1);
  dir_.WriteFile("libtessera-text.so", "text");
  EXPECT_THAT(LoadPlugin("libtessera-text.so").status(),
              StatusIs(kFailedPrecondition, HasSubstr("does not load")));
  const std::string folder =
      std::filesystem::current_path() / "tests/dcp/io/plugin";
  setenv(kFolderVariable, folder.c_str(), 1);
  EXPECT_THAT(LoadPlugin("libtessera-other.so").status(),
              StatusIs(kFailedPrecondition, HasSubstr("is not a plugin")));
}

}  // namespace
}  // namespace dcp
