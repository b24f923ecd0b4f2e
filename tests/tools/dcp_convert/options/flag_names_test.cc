// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/flag_names.h"

#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
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
  EXPECT_EQ(WithFlags("the option copy_config = false leaves them out"),
            "--no-copy-config leaves them out");
  EXPECT_EQ(WithFlags("the option optimizer_in_model_order gives names"),
            "--optimizer-names order gives names");
  EXPECT_EQ(WithFlags("the option from = safetensors reads the model"),
            "--from safetensors reads the model");
}

TEST(WithFlags, DoesNotChangeOtherText) {
  for (const char* message :
       {"", "the option ", "the option toml", "the option To",
        "an option to overwrite", "the option copy_config",
        "the option toml = 2"}) {
    EXPECT_EQ(WithFlags(message), message);
  }
}

TEST(WithFlags, ChangesOnlyWhatTheErrorCarries) {
  const absl::Status error = Annotate(
      OptionError(absl::StatusCode::kAlreadyExists, "/the option to/x",
                  " exists; ", OptionName{"overwrite"}, " replaces it"),
      "write");
  EXPECT_EQ(WithFlags(error),
            "write: /the option to/x exists; --overwrite replaces it");
  EXPECT_EQ(WithFlags(absl::AlreadyExistsError("the option overwrite")),
            "the option overwrite");
}

}  // namespace
}  // namespace dcp::tools
