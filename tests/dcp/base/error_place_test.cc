// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_place.h"

#include <gtest/gtest.h>

#include "dcp/base/status.h"

namespace dcp {
namespace {

TEST(ErrorPlace, IsCarriedThroughAnnotation) {
  const ErrorPlace place{.path = "/a", .file = "b", .tensor = "w"};
  const absl::Status status =
      Annotate(WithPlace(absl::DataLossError("torn"), place), "read");
  EXPECT_EQ(StatusPlace(status), place);
  EXPECT_EQ(status.message(), "read: torn");
}

TEST(ErrorPlace, KeepsKnownFieldsAndAddsOthers) {
  absl::Status status =
      WithPlace(absl::DataLossError("torn"), {.file = "b", .offset = "12"});
  status = WithPlace(status, {.path = "/a", .file = "c"});
  EXPECT_EQ(StatusPlace(status),
            (ErrorPlace{.path = "/a", .file = "b", .offset = "12"}));
}

TEST(ErrorPlace, OkHasNone) {
  EXPECT_EQ(WithPlace(absl::OkStatus(), {.path = "/a"}), absl::OkStatus());
  EXPECT_EQ(StatusPlace(absl::DataLossError("torn")), ErrorPlace());
}

}  // namespace
}  // namespace dcp
