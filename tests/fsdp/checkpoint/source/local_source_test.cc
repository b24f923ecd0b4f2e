// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/local_source.h"

#include <memory>

#include "ATen/ops/ones.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;

TEST(LocalSource, ListsStoredEntries) {
  const TempDir dir;
  ASSERT_OK(save({{"a", at::ones({2, 3})}, {"n", 5}}, dir.Join("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       LocalSource::Open(nullptr, dir.Join("c")));
  EXPECT_EQ(source->path(), dir.Join("c"));
  const std::optional<StoredEntry> a = source->Find("a");
  ASSERT_TRUE(a.has_value());
  EXPECT_TRUE(a->is_tensor);
  EXPECT_EQ(a->dtype, dcp::DType::kFloat32);
  EXPECT_THAT(a->shape, ElementsAre(2, 3));
  ASSERT_TRUE(source->Find("n").has_value());
  EXPECT_FALSE(source->Find("n")->is_tensor);
  EXPECT_FALSE(source->Find("b").has_value());
  ASSERT_OK_AND_ASSIGN(const auto values,
                       source->ReadObjects({"a", "b", "n"}, {}));
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values.at("n").int_value(), 5);
}

TEST(LocalSource, MissingCheckpointIsNotFound) {
  const TempDir dir;
  EXPECT_THAT(LocalSource::Open(nullptr, dir.Join("c")),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace fsdp
