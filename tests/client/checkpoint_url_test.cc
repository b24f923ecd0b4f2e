// SPDX-License-Identifier: Apache-2.0

#include "client/checkpoint_url.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(CheckpointUrl, HasAddressAndPath) {
  ASSERT_OK_AND_ASSIGN(CheckpointUrl url,
                       ParseCheckpointUrl("tessera://host:7420/srv/a b%20/c"));
  EXPECT_EQ(url.address, "host:7420");
  EXPECT_EQ(url.path, "/srv/a b%20/c");
  ASSERT_OK_AND_ASSIGN(url, ParseCheckpointUrl("tessera://[::1]:1/c"));
  EXPECT_EQ(url.address, "[::1]:1");
  ASSERT_OK_AND_ASSIGN(url, ParseCheckpointUrl("tessera:///srv/c"));
  EXPECT_EQ(url.address, "");
  EXPECT_EQ(url.path, "/srv/c");
}

TEST(CheckpointUrl, MayNameAnObjectStoreOfTheServer) {
  ASSERT_OK_AND_ASSIGN(CheckpointUrl url,
                       ParseCheckpointUrl("tessera://host:1/s3://bucket/run"));
  EXPECT_EQ(url.address, "host:1");
  EXPECT_EQ(url.path, "s3://bucket/run");
  ASSERT_OK_AND_ASSIGN(url, ParseCheckpointUrl("tessera://host:1/a/s3://b"));
  EXPECT_EQ(url.path, "/a/s3://b");
  ASSERT_OK_AND_ASSIGN(url, ParseCheckpointUrl("tessera://host:1/://b"));
  EXPECT_EQ(url.path, "/://b");
}

TEST(CheckpointUrl, MayNameAUnixSocket) {
  ASSERT_OK_AND_ASSIGN(
      CheckpointUrl url,
      ParseCheckpointUrl("tessera://unix:/run/d.sock:/srv/a:b/c"));
  EXPECT_EQ(url.address, "unix:/run/d.sock");
  EXPECT_EQ(url.path, "/srv/a:b/c");
  ASSERT_OK_AND_ASSIGN(
      url, ParseCheckpointUrl("tessera://unix:/run/d.sock:/s3://bucket/run"));
  EXPECT_EQ(url.address, "unix:/run/d.sock");
  EXPECT_EQ(url.path, "s3://bucket/run");
}

TEST(CheckpointUrl, IsKnownByItsScheme) {
  EXPECT_TRUE(IsCheckpointUrl("tessera://host:1/c"));
  EXPECT_FALSE(IsCheckpointUrl("tessera:/c"));
  EXPECT_FALSE(IsCheckpointUrl("/tessera://c"));
  EXPECT_FALSE(IsCheckpointUrl(""));
}

TEST(CheckpointUrl, ReportsMistakes) {
  const auto expect = [](const std::string& text, const std::string& what) {
    EXPECT_THAT(ParseCheckpointUrl(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr(text), HasSubstr(what))));
  };
  expect("/srv/c", "not the URL");
  expect("tessera://host:7420", "path on the server is missing");
  expect("tessera://host:7420/", "path on the server is missing");
  expect("tessera://host/c", "port is missing");
  expect("tessera://host:/c", "port is missing");
  expect("tessera://:7420/c", "port is missing");
  expect("tessera://[::1]/c", "port is missing");
  expect("tessera://host:70000/c", "port is missing");
  expect("tessera://unix:/run/d.sock", "a colon must separate");
  expect("tessera://unix::/srv/c", "a colon must separate");
  expect("tessera://unix:/run/d.sock:", "must begin with /");
  expect("tessera://unix:/run/d.sock:srv/c", "must begin with /");
  expect("tessera://unix:/run/d.sock:/", "path on the server is missing");
}

}  // namespace
}  // namespace dcp::client
