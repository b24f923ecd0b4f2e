// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/option_name.h"

#include "dcp/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OptionError, CarriesTheOptionsThatItsMessageNames) {
  const absl::Status error = Annotate(
      OptionError(absl::StatusCode::kAlreadyExists, "/x exists; ",
                  OptionName{"overwrite"}, " replaces ", 2, " of it, and ",
                  OptionName{"from", "dcp"}, " reads it"),
      "write");
  EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(error.message(),
            "write: /x exists; the option overwrite replaces 2 of it, and the "
            "option from = dcp reads it");
  EXPECT_THAT(NamedOptions(error), ElementsAre("overwrite", "from"));
}

TEST(WithOptions, AddsEachOptionOnce) {
  const absl::Status error =
      WithOptions(OptionError(absl::StatusCode::kNotFound, OptionName{"like"}),
                  {"layout", "like"});
  EXPECT_THAT(NamedOptions(error), ElementsAre("like", "layout"));
  EXPECT_THAT(NamedOptions(absl::NotFoundError("the option like")), IsEmpty());
  EXPECT_TRUE(WithOptions(absl::OkStatus(), {"like"}).ok());
}

TEST(NamedOptions, FindsThemInText) {
  EXPECT_THAT(NamedOptions("which the option like or the option layout gives"),
              ElementsAre("like", "layout"));
  EXPECT_THAT(NamedOptions("no option"), IsEmpty());
}

TEST(RenameOptions, ReplacesTheNamesThatAreKnown) {
  const auto rename = [](const OptionName& option) {
    return option.field == "to" ? absl::StrCat("--to", option.value) : "";
  };
  EXPECT_EQ(RenameOptions("the option to; the option to = pt.", rename),
            "--to; --topt.");
  EXPECT_EQ(RenameOptions("the option too = 1, the option ", rename),
            "the option too = 1, the option ");
}

}  // namespace
}  // namespace dcp
