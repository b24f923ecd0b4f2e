// SPDX-License-Identifier: Apache-2.0
// CommandFixture: runs dcp-convert on files in a separate folder, and checks
// the exit code and texts. For tests of options.
#ifndef TESTS_TOOLS_DCP_CONVERT_COMMAND_FIXTURE_H_
#define TESTS_TOOLS_DCP_CONVERT_COMMAND_FIXTURE_H_

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp::testing {

using Arguments = std::vector<std::string>;

// The arguments, and then `more`.
inline Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class CommandFixture : public ::testing::Test {
 protected:
  struct Done {
    tools::ExitCode code;
    std::string out;
    std::string err;
  };

  Done Run(const Arguments& arguments) { return RunOn(*fs_, arguments); }

  static Done RunOn(FileSystem& fs, const Arguments& arguments) {
    std::ostringstream out;
    std::ostringstream err;
    const tools::ExitCode code =
        tools::RunCommand(arguments, {.out = out, .err = err}, fs, {});
    return {.code = code, .out = out.str(), .err = err.str()};
  }

  void Expect(tools::ExitCode code, const Arguments& arguments) {
    const Done done = Run(arguments);
    EXPECT_EQ(done.code, code) << absl::StrJoin(arguments, " ") << "\n"
                               << done.out << done.err;
  }

  // The verb writes nothing, and says why.
  void ExpectRefused(const Arguments& arguments, const std::string& says) {
    const Done done = Run(arguments);
    EXPECT_NE(done.code, tools::kExitDone) << absl::StrJoin(arguments, " ");
    EXPECT_THAT(done.err, ::testing::HasSubstr(says));
    EXPECT_FALSE(fs_->Stat(arguments[2]).ok()) << arguments[2];
  }

  std::string In(absl::string_view name) const {
    return JoinPath(dir_.path(), name);
  }

  TempDir dir_;
  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
};

}  // namespace dcp::testing

#endif  // TESTS_TOOLS_DCP_CONVERT_COMMAND_FIXTURE_H_
