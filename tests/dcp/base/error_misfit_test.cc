// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/error_misfit.h"

#include <gtest/gtest.h>

#include "dcp/base/status.h"

namespace dcp {
namespace {

TEST(ErrorMisfit, IsCarriedThroughAnnotation) {
  const absl::Status status =
      Annotate(WithMisfit(absl::DataLossError("x.q is missing")), "a.pt");
  EXPECT_TRUE(IsMisfit(status));
  EXPECT_EQ(status.message(), "a.pt: x.q is missing");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST(ErrorMisfit, OtherErrorsAndOkAreNotMisfits) {
  EXPECT_FALSE(IsMisfit(absl::DataLossError("torn")));
  EXPECT_FALSE(IsMisfit(WithMisfit(absl::OkStatus())));
}

}  // namespace
}  // namespace dcp
