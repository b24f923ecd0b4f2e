// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/save_sources.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

TEST(SaveSources, ListsTensorsAndObjectsByName) {
  const at::Tensor a = at::ones({3, 4});
  const std::unique_ptr<SaveSources> held =
      MakeSaveSources({{"model", StateDict{{"a", a}}}, {"step", 5}}, 1);
  ASSERT_OK(held->state.status);
  ASSERT_EQ(held->state.tensors.size(), 1u);
  const dcp::SaveTensor& tensor = held->state.tensors[0];
  EXPECT_EQ(tensor.fqn, "model.a");
  EXPECT_EQ(tensor.shape, (dcp::Dims{3, 4}));
  EXPECT_EQ(tensor.box, dcp::WholeBox(tensor.shape));
  std::vector<uint8_t> bytes(48);
  ASSERT_OK(tensor.source->Fill(0, bytes));
  EXPECT_EQ(std::memcmp(bytes.data(), a.data_ptr(), 48), 0);
  ASSERT_EQ(held->state.objects.size(), 1u);
  EXPECT_EQ(held->state.objects[0].value.int_value(), 5);
}

TEST(SaveSources, EstimatesItsShare) {
  const at::Tensor a = at::ones({1 << 20});
  StateDict state;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    state[name] = a;
  }
  constexpr uint64_t kOne = 4 << 20;
  EXPECT_THAT(MakeSaveSources(state, 1)->share_bytes,
              AllOf(Ge(8 * kOne), Lt(9 * kOne)));
  // Two of eight on each of four ranks, and one more to be safe.
  EXPECT_THAT(MakeSaveSources(state, 4)->share_bytes,
              AllOf(Ge(3 * kOne), Lt(4 * kOne)));
}

TEST(SaveSources, NamesEntriesThatCannotBeStored) {
  EXPECT_THAT(
      MakeSaveSources(
          {{"ok", 1}, {"bad", at::empty({2}, at::device(at::kMeta))}}, 1)
          ->state.status,
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad: ")));
  EXPECT_THAT(
      MakeSaveSources({{"t", StateTuple{{at::ones({1})}}}}, 1)->state.status,
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("t: ")));
}

}  // namespace
}  // namespace fsdp
