// SPDX-License-Identifier: Apache-2.0
// A program that reads the formats alone.
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

TEST(OnlyFormatsTest, OpensFormatsAndRefusesOtherDialectsByName) {
  TempDir dir;
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kFloat32, {2}, BytesOf<float>({1, 2}));
  builder.Write(dir, "c");
  OpenOptions options;
  EXPECT_OK(Checkpoint::Open(Disk(), dir.Join("c"), options).status());
  options.dialect.from = Dialect::kMegatron;
  EXPECT_THAT(Checkpoint::Open(Disk(), dir.Join("c"), options).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("without the dialect megatron")));
}

}  // namespace
}  // namespace dcp
