// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/object/object_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kInvalidArgument;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ObjectUrl, OnlyKnownSchemesAreStores) {
  for (const char* path : {"s3://b", "gs://b/k", "abfs://b", "abfss://b/k",
                           "hdfs://host/k", "s3://"}) {
    EXPECT_TRUE(IsObjectUrl(path)) << path;
  }
  for (const char* path : {"b/k", "/s3/b", "s3:/b", "tessera://host:1/k",
                           "S3://b", "a/s3://b", ""}) {
    EXPECT_FALSE(IsObjectUrl(path)) << path;
  }
}

TEST(ObjectUrl, SplitsBucketAndKey) {
  const absl::StatusOr<ObjectUrl> url =
      ParseObjectUrl("s3://bucket/run 7/step-1000/");
  ASSERT_OK(url.status());
  EXPECT_EQ(url->scheme, "s3");
  EXPECT_EQ(url->bucket, "bucket");
  EXPECT_EQ(url->key, "run 7/step-1000");
  EXPECT_EQ(ParseObjectUrl("gs://bucket")->key, "");
  EXPECT_EQ(ParseObjectUrl("gs://bucket/")->key, "");
}

TEST(ObjectUrl, RefusesInvalidNames) {
  EXPECT_THAT(ParseObjectUrl("s3://").status(),
              StatusIs(kInvalidArgument, HasSubstr("bucket has no name")));
  EXPECT_THAT(ParseObjectUrl("s3:///key").status(),
              StatusIs(kInvalidArgument, HasSubstr("bucket has no name")));
  for (const char* key : {"a//b", "a/../b", "./a", "a/.", "/a", ".."}) {
    EXPECT_THAT(ParseObjectUrl(absl::StrCat("s3://b/", key)).status(),
                StatusIs(kInvalidArgument,
                         AllOf(HasSubstr(key), HasSubstr("component"))));
  }
  EXPECT_THAT(ParseObjectUrl("s3://b/a\nb").status(),
              StatusIs(kInvalidArgument, HasSubstr("control character")));
  EXPECT_OK(ParseObjectUrl(
                absl::StrCat("s3://b/", std::string(kMaxObjectKeyBytes, 'k')))
                .status());
  EXPECT_THAT(
      ParseObjectUrl(
          absl::StrCat("s3://b/", std::string(kMaxObjectKeyBytes + 1, 'k')))
          .status(),
      StatusIs(kInvalidArgument, HasSubstr("1025 bytes, the limit is 1024")));
}

TEST(ObjectUrl, PathsOfFilesKeepSchemeAndBucket) {
  EXPECT_EQ(JoinPath("s3://b", "k"), "s3://b/k");
  EXPECT_EQ(JoinPath("s3://b/k", "n"), "s3://b/k/n");
  EXPECT_EQ(ParentDirectory("s3://b/k/n"), "s3://b/k");
  EXPECT_EQ(ParentDirectory("s3://b/k"), "s3://b");
  EXPECT_EQ(ParentDirectory("s3://b"), "s3://b");
  EXPECT_EQ(BaseName("s3://b/k/"), "k");
}

}  // namespace
}  // namespace dcp
