// SPDX-License-Identifier: Apache-2.0

#include "client/channel.h"

#include <cstdlib>
#include <string>

#include "client/checkpoint_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

// Returns the token that the server receives.
std::string Shown(const ClientOptions& options, FakeServer& server) {
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Open(options);
  EXPECT_OK(channel);
  EXPECT_OK(CheckpointClient(*channel).InspectPage({}));
  return server.checkpoints.authorization();
}

TEST(Channel, TakesTheTokenFromAFileOrTheEnvironment) {
  FakeServer server;
  const TempDir dir;
  ClientOptions options{.address = server.address()};
  options.token_variable = "TESSERA_TEST_TOKEN";
  unsetenv("TESSERA_TEST_TOKEN");
  EXPECT_EQ(Shown(options, server), "");
  setenv("TESSERA_TEST_TOKEN", "from-variable", 1);
  EXPECT_EQ(Shown(options, server), "Bearer from-variable");
  options.token_file = dir.WriteFile("token", "from-file\n");
  EXPECT_EQ(Shown(options, server), "Bearer from-file");
  unsetenv("TESSERA_TEST_TOKEN");
}

TEST(Channel, NamesMistakesInOptions) {
  const TempDir dir;
  const ClientOptions right{.address = "127.0.0.1:1"};
  const auto refused = [&](auto change, const std::string& message) {
    ClientOptions options = right;
    change(options);
    EXPECT_THAT(Channel::Open(options), StatusIs(kInvalid, HasSubstr(message)));
  };
  EXPECT_OK(Channel::Open(right));
  refused([](ClientOptions& o) { o.address = ""; }, "address is missing");
  refused([](ClientOptions& o) { o.cert_file = "/c"; },
          "must be given together");
  refused([](ClientOptions& o) { o.cert_file = o.key_file = "/c"; },
          "requires tls or ca_file");
  refused([](ClientOptions& o) { o.ca_file = "/none"; }, "/none: No such file");
  refused([](ClientOptions& o) { o.token_file = "/none"; }, "/none");
  refused([&](ClientOptions& o) { o.token_file = dir.WriteFile("empty", ""); },
          "empty: is empty");
  refused(
      [&](ClientOptions& o) { o.token_file = dir.WriteFile("two", "a\nb"); },
      "must be one word");
}

TEST(Channel, RetriesWhileTheServerIsUnavailable) {
  FakeServer server;
  server.checkpoints.num_failures = 3;
  CheckpointClient client(server.Connect());
  EXPECT_OK(client.InspectPage({}));
  EXPECT_EQ(server.checkpoints.num_calls, 4);
}

TEST(Channel, DoesNotRetryOtherFailures) {
  FakeServer server;
  server.checkpoints.num_failures = 3;
  server.checkpoints.failure = {grpc::StatusCode::NOT_FOUND, "no checkpoint"};
  CheckpointClient client(server.Connect());
  EXPECT_THAT(client.InspectPage({}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("Inspect: no checkpoint")));
  EXPECT_EQ(server.checkpoints.num_calls, 1);
}

TEST(Channel, MissingServerIsUnavailable) {
  ClientOptions options{.address = "127.0.0.1:1"};
  options.retry.max_retries = 1;
  options.retry.first_wait = absl::ZeroDuration();
  ASSERT_OK_AND_ASSIGN(const auto channel, Channel::Open(options));
  EXPECT_THAT(CheckpointClient(channel).InspectPage({}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Inspect")));
}

TEST(Channel, StopEndsACall) {
  FakeServer server;
  CheckpointClient client(server.Connect());
  std::stop_source source;
  source.request_stop();
  EXPECT_THAT(client.InspectPage({}, {.stop = source.get_token()}),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace dcp::client
