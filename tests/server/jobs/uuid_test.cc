// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/uuid.h"

#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(Uuid, IsThirtySixCharactersInFiveGroups) {
  EXPECT_TRUE(IsUuid("f47ac10b-58cc-4372-a567-0e02b2c3d479"));
  EXPECT_TRUE(IsUuid("F47AC10B-58CC-4372-A567-0E02B2C3D479"));
  for (const char* text : {"", "x", "f47ac10b58cc4372a5670e02b2c3d479",
                           "f47ac10b-58cc-4372-a567-0e02b2c3d47",
                           "f47ac10b-58cc-4372-a567-0e02b2c3d4790",
                           "f47ac10b-58cc-4372-a567-0e02b2c3d47g",
                           "f47ac10b558cc-4372-a567-0e02b2c3d479",
                           "-47ac10b-58cc-4372-a567-0e02b2c3d479",
                           "{47ac10b-58cc-4372-a567-0e02b2c3d479"}) {
    EXPECT_FALSE(IsUuid(text)) << text;
  }
}

TEST(Uuid, TheOneOfZerosIsNil) {
  EXPECT_TRUE(IsNilUuid("00000000-0000-0000-0000-000000000000"));
  EXPECT_FALSE(IsNilUuid("00000000-0000-0000-0000-000000000001"));
}

}  // namespace
}  // namespace dcp::server
