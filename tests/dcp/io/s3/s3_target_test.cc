// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

using ::dcp::testing::kInvalid;

S3Settings InRegion(const char* region) {
  S3Settings settings;
  settings.region = region;
  return settings;
}

S3Settings AtEndpoint(const char* endpoint) {
  S3Settings settings;
  settings.endpoint = endpoint;
  return settings;
}

TEST(S3Target, WithAmazonTheBucketIsInTheHost) {
  const auto target = FindS3Target("my-bucket", InRegion("eu-central-1"));
  ASSERT_OK(target);
  EXPECT_EQ(target->url, "https://my-bucket.s3.eu-central-1.amazonaws.com");
  EXPECT_EQ(target->path, "");
  EXPECT_EQ(target->region, "eu-central-1");
  EXPECT_TRUE(target->has_tls);
}

TEST(S3Target, ABucketWithADotIsInThePathBecauseOfTheCertificate) {
  const auto target = FindS3Target("my.bucket", {});
  ASSERT_OK(target);
  EXPECT_EQ(target->url, "https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(target->path, "/my.bucket");
}

TEST(S3Target, ChineseRegionsHaveTheirOwnDomain) {
  const auto target = FindS3Target("bucket", InRegion("cn-north-1"));
  ASSERT_OK(target);
  EXPECT_EQ(target->authority, "bucket.s3.cn-north-1.amazonaws.com.cn");
}

TEST(S3Target, WithAnEndpointTheBucketIsInThePath) {
  const auto plain =
      FindS3Target("bucket", AtEndpoint("http://127.0.0.1:9000/"));
  ASSERT_OK(plain);
  EXPECT_EQ(plain->url, "http://127.0.0.1:9000");
  EXPECT_EQ(plain->authority, "127.0.0.1:9000");
  EXPECT_EQ(plain->path, "/bucket");
  EXPECT_FALSE(plain->has_tls);
  const auto secure =
      FindS3Target("bucket", AtEndpoint("https://storage.example.com"));
  ASSERT_OK(secure);
  EXPECT_TRUE(secure->has_tls);
}

TEST(S3Target, AnEndpointMayHaveAPath) {
  const auto target =
      FindS3Target("bucket", AtEndpoint("https://example.com:8443/store/s3//"));
  ASSERT_OK(target);
  EXPECT_EQ(target->url, "https://example.com:8443");
  EXPECT_EQ(target->path, "/store/s3/bucket");
}

TEST(S3Target, AddressingDecidesWhereTheBucketIsNamed) {
  S3Settings settings = AtEndpoint("https://example.com/s3");
  settings.addressing = S3Addressing::kVirtual;
  const auto elsewhere = FindS3Target("bucket", settings);
  ASSERT_OK(elsewhere);
  EXPECT_EQ(elsewhere->authority, "bucket.example.com");
  EXPECT_EQ(elsewhere->path, "/s3");
  settings = InRegion("eu-central-1");
  settings.addressing = S3Addressing::kPath;
  const auto amazon = FindS3Target("bucket", settings);
  ASSERT_OK(amazon);
  EXPECT_EQ(amazon->authority, "s3.eu-central-1.amazonaws.com");
  EXPECT_EQ(amazon->path, "/bucket");
}

TEST(S3Target, RefusesInvalidBucketNames) {
  for (const char* const name : {"", "ab", "a/b/c", "bucket?x", "bücket"}) {
    EXPECT_THAT(FindS3Target(name, {}),
                StatusIs(kInvalid, HasSubstr("name of a bucket")))
        << name;
  }
  EXPECT_THAT(FindS3Target(std::string(256, 'a'), {}), StatusIs(kInvalid));
}

TEST(S3Target, RefusesEndpointsThatAreNotUrls) {
  for (const char* const endpoint :
       {"", "localhost:9000", "ftp://host", "http://", "http:///path",
        "http://host/a?b", "http://user@host", "http://host?x=1"}) {
    EXPECT_THAT(CheckS3Endpoint("AWS_ENDPOINT_URL", endpoint),
                StatusIs(kInvalid, HasSubstr("AWS_ENDPOINT_URL is \"")))
        << endpoint;
  }
  EXPECT_OK(CheckS3Endpoint("AWS_ENDPOINT_URL", "http://[::1]:80"));
}

}  // namespace
}  // namespace dcp
