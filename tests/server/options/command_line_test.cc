// SPDX-License-Identifier: Apache-2.0

#include "server/options/command_line.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/options/server_options.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using ::dcp::testing::kInvalid;

// Adds the required options.
absl::StatusOr<ServerOptions> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--root=/data", "--state-dir=/state"});
  return ParseServerOptions(arguments);
}

TEST(ServerOptions, DefaultsServeOnlyThisMachine) {
  ASSERT_OK_AND_ASSIGN(const ServerOptions options, Parse({}));
  EXPECT_EQ(options.listen, "127.0.0.1:7420");
  ASSERT_EQ(options.roots.size(), 1);
  EXPECT_EQ(options.roots[0].path, "/data");
  EXPECT_TRUE(options.roots[0].writable);
  EXPECT_EQ(options.state_dir, "/state");
  EXPECT_FALSE(options.check_config);
}

TEST(ServerOptions, ReadsEveryOption) {
  ASSERT_OK_AND_ASSIGN(const ServerOptions options,
                       Parse({"--listen",
                              "[::]:1",
                              "--allow-insecure",
                              "--read-only-root=/m",
                              "--tls-cert=/c",
                              "--tls-key=/k",
                              "--tls-client-ca=/a",
                              "--tokens-file=/t",
                              "--max-memory=4GiB",
                              "--job-memory=1GiB",
                              "--max-running-jobs=3",
                              "--max-queued-jobs=4",
                              "--max-jobs-per-client=5",
                              "--max-streams=6",
                              "--max-streams-per-client=2",
                              "--client-memory=128MiB",
                              "--max-requests-per-second=11",
                              "--disk-timeout=12s",
                              "--num-readers=7",
                              "--max-connections=9",
                              "--max-connections-per-address=10",
                              "--log-level=warning",
                              "--log-format=json",
                              "--max-request=1MiB",
                              "--keep-jobs=1d",
                              "--max-ended-jobs=8",
                              "--drain=5s",
                              "--metrics-listen=127.0.0.1:2",
                              "--check-config"}));
  EXPECT_EQ(options.listen, "[::]:1");
  EXPECT_TRUE(options.allow_insecure);
  ASSERT_EQ(options.roots.size(), 2);
  EXPECT_EQ(options.roots[1].path, "/m");
  EXPECT_FALSE(options.roots[1].writable);
  EXPECT_EQ(options.tls_cert, "/c");
  EXPECT_EQ(options.tls_key, "/k");
  EXPECT_EQ(options.tls_client_ca, "/a");
  EXPECT_EQ(options.tokens_file, "/t");
  EXPECT_EQ(options.max_memory_bytes, uint64_t{4} << 30);
  EXPECT_EQ(options.job_memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(options.max_running_jobs, 3);
  EXPECT_EQ(options.max_queued_jobs, 4);
  EXPECT_EQ(options.max_jobs_per_client, 5);
  EXPECT_EQ(StreamsPerClient(options), 2);
  EXPECT_EQ(ClientMemoryBytes(options), uint64_t{128} << 20);
  EXPECT_EQ(options.max_requests_per_second, 11);
  EXPECT_EQ(options.disk_timeout, absl::Seconds(12));
  EXPECT_EQ(options.max_streams, 6);
  EXPECT_EQ(options.max_connections, 9);
  EXPECT_EQ(options.max_connections_per_address, 10);
  EXPECT_EQ(options.log.lowest, LogSeverity::kWarning);
  EXPECT_TRUE(options.log.json);
  EXPECT_EQ(options.num_readers, 7);
  EXPECT_EQ(options.max_request_bytes, uint64_t{1} << 20);
  EXPECT_EQ(options.keep_jobs, absl::Hours(24));
  EXPECT_EQ(options.max_ended_jobs, 8);
  EXPECT_EQ(options.drain, absl::Seconds(5));
  EXPECT_EQ(options.metrics_listen, "127.0.0.1:2");
  EXPECT_TRUE(options.check_config);
}

TEST(ServerOptions, FlagsOverrideTheFile) {
  const TempDir dir;
  const std::string path = dir.WriteFile("conf",
                                         "# a server\n"
                                         "listen = 127.0.0.1:1\n"
                                         "  max-memory=4 GiB  \n"
                                         "\n"
                                         "root = /from/file\r\n"
                                         "state-dir = /state = x\n"
                                         "allow-insecure\n");
  ASSERT_OK_AND_ASSIGN(
      ServerOptions options,
      ParseServerOptions({"--listen=127.0.0.1:2", "--config", path}));
  EXPECT_EQ(options.listen, "127.0.0.1:2");
  EXPECT_EQ(options.max_memory_bytes, uint64_t{4} << 30);
  EXPECT_EQ(options.roots.at(0).path, "/from/file");
  EXPECT_EQ(options.state_dir, "/state = x");
  EXPECT_TRUE(options.allow_insecure);
  ASSERT_OK_AND_ASSIGN(options,
                       ParseServerOptions({"--config=" + path, "--root=/f"}));
  ASSERT_EQ(options.roots.size(), 1);
  EXPECT_EQ(options.roots[0].path, "/f");
}

TEST(ServerOptions, ReportsAllMistakesAtOnce) {
  const TempDir dir;
  const std::string path =
      dir.WriteFile("conf", "listen = nowhere\n\nmax-streams = 0\nhelp\n");
  EXPECT_THAT(
      Parse({"--config=" + path, "--max-memroy=2GiB", "--drain=30", "data",
             "--job-memory"}),
      StatusIs(kInvalid,
               AllOf(HasSubstr(path + ":1: listen: 'nowhere' is not"),
                     HasSubstr(path + ":3: max-streams: '0' is not a number "
                                      "from 1 to"),
                     HasSubstr(path + ":4: help: there is no such option"),
                     HasSubstr("--max-memroy: there is no such option; did "
                               "you mean max-memory?"),
                     HasSubstr("--drain: '30' is not a time such as 30s"),
                     HasSubstr("data: is not an option"),
                     HasSubstr("--job-memory: requires a value: SIZE"))));
}

TEST(ServerOptions, ReportsConflictsWithOtherMistakes) {
  const absl::Status status =
      ParseServerOptions({"--drain=30", "--listen=0.0.0.0:1", "--max-streams=5",
                          "--max-streams-per-client=6", "--client-memory=3GiB",
                          "--job-memory=900GiB", "--tls-client-ca=/a"})
          .status();
  EXPECT_THAT(
      status,
      StatusIs(kInvalid, AllOf(HasSubstr("--drain: '30' is not a time"),
                               HasSubstr("root: is missing"),
                               HasSubstr("state-dir: is missing"),
                               HasSubstr("listen: 0.0.0.0:1 can be reached"),
                               HasSubstr("tls-client-ca: requires"),
                               HasSubstr("max-streams-per-client: 6 exceeds"),
                               HasSubstr("client-memory: 3 GiB exceeds"),
                               HasSubstr("job-memory: 900 GiB exceeds"))));
}

// It may be misspelt, or the comparison would be with the default.
TEST(ServerOptions, ReportsAMistakeOnce) {
  const absl::Status status =
      ParseServerOptions({"--max-memory=1PB", "--client-memory=3GiB",
                          "--rot=/data", "--state-dir=/state"})
          .status();
  EXPECT_THAT(status, StatusIs(kInvalid, AllOf(HasSubstr("--max-memory: "),
                                               HasSubstr("--rot: "))));
  EXPECT_THAT(std::string(status.message()),
              AllOf(Not(HasSubstr("client-memory")),
                    Not(HasSubstr("root: is missing"))));
}

TEST(ServerOptions, MistakesHaveClearMessages) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--listen=0.0.0.0:1"}, "listen: 0.0.0.0:1 can be reached by other"},
      {{"--tls-cert=/c"}, "tls-key: is missing"},
      {{"--tls-key=/k"}, "tls-cert: is missing"},
      {{"--tls-client-ca=/a"}, "tls-client-ca: requires tls-cert"},
      {{"--max-memory=64MiB", "--job-memory=64MiB"},
       "job-memory: 64 MiB exceeds the 40 MiB that max-memory, 64 MiB, leaves "
       "to jobs"},
      {{"--max-memory=48MiB"}, "is not a size from 64 MiB"},
      {{"--max-request=1GiB"}, "is not a size from 64 KiB to 64 MiB"},
      {{"--root=data"}, "'data' is not an absolute path"},
      {{"--state-dir=/again"}, "--state-dir: is given twice"},
      {{"--config"}, "--config: requires a value: FILE"},
      {{"--config=/none/x"}, "/none/x: No such file"},
      {{"--config=/"}, "is not a file"},
      {{"--metrics-listen=unix:/m"}, "metrics-listen: 'unix:/m' is not"},
      {{"--"}, "is not an option"},
  };
  for (const auto& [arguments, message] : cases) {
    EXPECT_THAT(Parse(arguments), StatusIs(kInvalid, HasSubstr(message)));
  }
  EXPECT_THAT(ParseServerOptions({}),
              StatusIs(kInvalid, AllOf(HasSubstr("root: is missing"),
                                       HasSubstr("state-dir: is missing"))));
}

TEST(ServerOptions, OtherMachinesRequireTlsOrAllowInsecure) {
  EXPECT_OK(Parse({"--listen=[::]:1", "--tls-cert=/c", "--tls-key=/k"}));
  EXPECT_OK(Parse({"--listen=[::]:1", "--allow-insecure"}));
  EXPECT_OK(Parse({"--listen=unix:/run/a.sock"}));
}

TEST(ServerOptions, HelpNeedsNoOtherOption) {
  ASSERT_OK_AND_ASSIGN(const ServerOptions options,
                       ParseServerOptions({"--help"}));
  EXPECT_TRUE(options.help);
}

TEST(ServerOptions, ClientLimitsHaveDefaults) {
  ASSERT_OK_AND_ASSIGN(ServerOptions options, Parse({"--max-memory=1GiB"}));
  EXPECT_EQ(StreamsPerClient(options), 750);
  EXPECT_EQ(ClientMemoryBytes(options), uint64_t{512} << 20);
  // The memory for one call.
  ASSERT_OK_AND_ASSIGN(options, Parse({"--max-memory=64MiB"}));
  EXPECT_EQ(ClientMemoryBytes(options), uint64_t{64} << 20);
  ASSERT_OK_AND_ASSIGN(options,
                       Parse({"--max-memory=80MiB", "--max-streams=1"}));
  EXPECT_EQ(StreamsPerClient(options), 1);
  EXPECT_EQ(ClientMemoryBytes(options), uint64_t{64} << 20);
  EXPECT_THAT(Parse({"--max-streams=5", "--max-streams-per-client=6"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("6 exceeds max-streams, 5")));
  EXPECT_THAT(Parse({"--max-memory=1GiB", "--client-memory=2GiB"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("client-memory: 2 GiB exceeds max-memory")));
}

TEST(ServerOptions, HelpListsOptionsAndDefaultsInShortLines) {
  const std::string help = ServerHelp();
  EXPECT_THAT(help, HasSubstr("--max-memory=SIZE"));
  EXPECT_THAT(help, HasSubstr("Default: 2 GiB"));
  EXPECT_THAT(help, HasSubstr("--check-config"));
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
  EXPECT_THAT(help, Not(HasSubstr("\t")));
}

}  // namespace
}  // namespace dcp::server
