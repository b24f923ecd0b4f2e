// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/option_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp::tools {
namespace {

TEST(WithFlags, ReplacesFieldsByFlags) {
  EXPECT_EQ(WithFlags("/x exists; the option overwrite replaces it"),
            "/x exists; --overwrite replaces it");
  EXPECT_EQ(WithFlags("the option to, or the option max_shard_bytes"),
            "--to, or --max-shard-size");
  EXPECT_EQ(WithFlags("the option placements, the option other_meshes"),
            "--place, --mesh");
  EXPECT_EQ(WithFlags("with the option tensor_parallel, or"),
            "with --tp-plan, or");
  EXPECT_EQ(WithFlags("the option copy_companions = false leaves them out"),
            "--no-copy-config leaves them out");
}

TEST(WithFlags, DoesNotChangeOtherText) {
  for (const char* message :
       {"", "the option ", "the option toml", "the option To",
        "an option to overwrite", "the option copy_companions"}) {
    EXPECT_EQ(WithFlags(message), message);
  }
}

}  // namespace
}  // namespace dcp::tools
