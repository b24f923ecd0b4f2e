// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/daemon_source.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/test_daemon.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::TestDaemon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DaemonSource, ListsStoredEntries) {
  const TestDaemon daemon;
  ASSERT_OK(save({{"a", at::ones({2, 3})}, {"n", 5}}, daemon.Path("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       DaemonSource::Open(daemon.Url("c"), {}, {}, {}));
  EXPECT_EQ(source->path(), daemon.Url("c"));
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

// More names than one request may have.
TEST(DaemonSource, ReadsManyObjects) {
  const TestDaemon daemon;
  StateDict state;
  absl::flat_hash_set<std::string> names;
  for (int i = 0; i < 2500; ++i) {
    state[absl::StrCat("n", i)] = i;
    names.insert(absl::StrCat("n", i));
  }
  ASSERT_OK(save(state, daemon.Path("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       DaemonSource::Open(daemon.Url("c"), {}, {}, {}));
  ASSERT_OK_AND_ASSIGN(const auto values, source->ReadObjects(names, {}));
  ASSERT_EQ(values.size(), 2500u);
  EXPECT_EQ(values.at("n2499").int_value(), 2499);
}

TEST(DaemonSource, NeverMixesTwoCheckpoints) {
  const TestDaemon daemon;
  ASSERT_OK(save({{"a", at::ones({3})}}, daemon.Path("c")));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       DaemonSource::Open(daemon.Url("c"), {}, {}, {}));
  const at::Tensor target = at::ones({3});
  TorchTensorSink sink(target, nullptr);
  const std::vector<dcp::LoadTensor> tensors{{.fqn = "a",
                                              .dtype = dcp::DType::kFloat32,
                                              .shape = {3},
                                              .box = dcp::WholeBox({3}),
                                              .sink = &sink}};
  const CheckpointSource::ReadOptions options{
      .memory_bytes = 1 << 20, .stop = {}, .stats = nullptr};
  EXPECT_OK(source->ReadTensors(tensors, options));
  ASSERT_OK(save({{"a", at::full({3}, 2.0)}}, daemon.Path("c")));
  EXPECT_THAT(source->ReadTensors(tensors, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(daemon.Url("c"))));
}

TEST(DaemonSource, ErrorNamesAMalformedUrl) {
  EXPECT_THAT(DaemonSource::Open("tessera://host/c", {}, {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tessera://host/c")));
}

}  // namespace
}  // namespace fsdp
