// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_side.h"

#include <gtest/gtest.h>

#include "dcp/base/status.h"

namespace dcp {
namespace {

TEST(ErrorSide, IsCarriedThroughAnnotation) {
  const absl::Status status =
      Annotate(WithSide(absl::DataLossError("torn"), ErrorSide::kSource),
               "read ", "a.pt");
  EXPECT_EQ(StatusSide(status), ErrorSide::kSource);
  EXPECT_EQ(status.message(), "read a.pt: torn");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST(ErrorSide, TheFirstMarkStays) {
  absl::Status status =
      WithSide(absl::InternalError("x"), ErrorSide::kDestination);
  status = WithSide(status, ErrorSide::kSource);
  EXPECT_EQ(StatusSide(status), ErrorSide::kDestination);
}

TEST(ErrorSide, OkHasNone) {
  EXPECT_EQ(StatusSide(WithSide(absl::OkStatus(), ErrorSide::kSource)),
            ErrorSide::kNone);
  EXPECT_EQ(StatusSide(absl::InternalError("x")), ErrorSide::kNone);
  EXPECT_EQ(StatusSide(WithSide(absl::InternalError("x"), ErrorSide::kNone)),
            ErrorSide::kNone);
}

}  // namespace
}  // namespace dcp
