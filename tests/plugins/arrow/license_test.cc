// SPDX-License-Identifier: Apache-2.0
// The package for users contains the licences of Arrow's library.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

TEST(ArrowPlugin, ContainsTheLibrarysLicences) {
  EXPECT_THAT(testing::ReadFile("plugins/arrow/libarrow.so.2600.LICENSE.txt"),
              ::testing::AllOf(::testing::HasSubstr("Apache License"),
                               ::testing::HasSubstr("3rdparty dependency")));
}

}  // namespace
}  // namespace dcp
