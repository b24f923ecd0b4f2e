// SPDX-License-Identifier: Apache-2.0
// The tensor parts that ranks hold, and the stages that must know them.

#include "fsdp/checkpoint/state/local_parts.h"

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;

TEST(LocalParts, ViewsHoldTheElementsOfTheirBoxes) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    size_t num_split = 0;
    for (const int64_t rows : {1, 2, 3, 5, 7, 8}) {
      const at::Tensor whole = at::arange(rows * 6).view({rows, 6});
      for (const Placements& placements :
           std::vector<Placements>{{Shard(0), Shard(0)},
                                   {StridedShard(0, 2), Shard(0)},
                                   {StridedShard(1, 2), Shard(1)},
                                   {Replicate(), Shard(0)},
                                   {Shard(0), Shard(1)}}) {
        const DTensor tensor = distribute_tensor(
            whole, mesh, placements, /*src_data_rank=*/std::nullopt);
        ASSERT_OK_AND_ASSIGN(const std::vector<LocalPart> parts,
                             FindLocalParts(tensor));
        num_split += parts.size() > 1 ? 1 : 0;
        int64_t num_elements = 0;
        for (const LocalPart& part : parts) {
          at::Tensor expected = whole;
          for (int64_t d = 0; d < 2; ++d) {
            const auto i = static_cast<size_t>(d);
            expected =
                expected.narrow(d, part.box.offsets[i], part.box.sizes[i]);
          }
          num_elements += part.local.numel();
          // An empty shard's local tensor may have other extents.
          if (part.local.numel() == 0) continue;
          EXPECT_TRUE(at::equal(part.local, expected))
              << rows << " " << to_string(placements);
        }
        EXPECT_EQ(num_elements, tensor.to_local().numel());
      }
    }
    fsdp::testing::Report(static_cast<double>(num_split));
  });
}

TEST(LocalParts, PartialValuesHaveNone) {
  RunRanks(1, [] {
    init_process_group();
    const DTensor partial = DTensor::from_local(
        at::ones({2}), init_device_mesh("cpu", {1}), {Partial()});
    EXPECT_THAT(FindLocalParts(partial),
                StatusIs(absl::StatusCode::kInvalidArgument));
  });
}

}  // namespace
}  // namespace fsdp
