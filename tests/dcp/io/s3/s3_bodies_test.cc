// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_bodies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dcp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(S3Bodies, KeysOfARemovalAreEscaped) {
  const std::string body = RemovalBody({"a", "<b>&\"c\"\n"});
  EXPECT_THAT(body, HasSubstr("<Quiet>true</Quiet>"));
  EXPECT_THAT(body, HasSubstr("<Object><Key>a</Key></Object>"));
  EXPECT_THAT(body, HasSubstr("<Key>&lt;b&gt;&amp;&quot;c&quot;&#10;</Key>"));
}

TEST(S3Bodies, PartsHaveTheChecksumsThatTheServerNamed) {
  const std::string body =
      CompletionBody({{1, 5, "\"e1\""}, {2, 5, "\"e2\"", "AAAAAA=="}});
  EXPECT_THAT(body, HasSubstr("<Part><PartNumber>1</PartNumber>"
                              "<ETag>&quot;e1&quot;</ETag></Part>"));
  EXPECT_THAT(body, HasSubstr("<ETag>&quot;e2&quot;</ETag>"
                              "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>"));
  EXPECT_THAT(CompletionBody({{1, 5, "e"}}), Not(HasSubstr("Checksum")));
}

}  // namespace
}  // namespace dcp
