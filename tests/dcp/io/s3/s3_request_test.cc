// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_request.h"

#include <gtest/gtest.h>

#include <string>

namespace dcp {
namespace {

TEST(S3Request, UrisKeepUnreservedCharactersAndSlashesOnRequest) {
  EXPECT_EQ(EncodeForUri("a/b-_.~Z9", true), "a/b-_.~Z9");
  EXPECT_EQ(EncodeForUri("a/b", false), "a%2Fb");
  EXPECT_EQ(EncodeForUri(" +%&=?#\xc3\xa4", false),
            "%20%2B%25%26%3D%3F%23%C3%A4");
}

TEST(S3Request, DecodingUndoesEncodingOfEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(DecodeFromUri(EncodeForUri(all, true)), all);
  EXPECT_EQ(DecodeFromUri(EncodeForUri(all, false)), all);
}

TEST(S3Request, InvalidEscapesStay) {
  EXPECT_EQ(DecodeFromUri("100%"), "100%");
  EXPECT_EQ(DecodeFromUri("%4"), "%4");
  EXPECT_EQ(DecodeFromUri("%zz%41"), "%zzA");
  EXPECT_EQ(DecodeFromUri("a+b"), "a b");
}

}  // namespace
}  // namespace dcp
