// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/matrix_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A parameter on a mesh such as "dp=2,tp=2", placed as "R,S(0)". Copies are the
// ranks that differ on the first axis if that is "R".
MatrixParameter OnMesh(std::vector<int64_t> shape, int64_t rows_per_matrix,
                       const std::string& mesh_text,
                       const std::string& placement_text) {
  const dcp::Mesh mesh = *dcp::ParseMesh(mesh_text);
  const dcp::Placements placements = *dcp::ParsePlacements(placement_text);
  MatrixParameter parameter = {.shape = std::move(shape),
                               .rows_per_matrix = rows_per_matrix,
                               .boxes = {},
                               .copies = {}};
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    const dcp::Dims at = mesh.Coordinate(rank);
    parameter.boxes.push_back(
        *dcp::LocalBoxes(parameter.shape, mesh, placements, at));
    const bool has_copies =
        placements[0].kind == dcp::Placement::Kind::kReplicate;
    parameter.copies.push_back(has_copies ? at[0] : 0);
  }
  return parameter;
}

std::vector<MatrixPlan> PlansOfAllRanks(
    const std::vector<MatrixParameter>& parameters) {
  const auto num_ranks = static_cast<int64_t>(parameters[0].boxes.size());
  std::vector<MatrixPlan> plans;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    plans.push_back(MakeMatrixPlan(parameters, num_ranks, rank));
  }
  return plans;
}

int64_t Elements(const PlannedMatrix& matrix) {
  return dcp::Volume(matrix.box.sizes);
}

// Elements of the matrices that each rank owns.
std::vector<int64_t> OwnedElements(const MatrixPlan& plan, size_t num_ranks) {
  std::vector<int64_t> owned(num_ranks);
  for (const PlannedMatrix& matrix : plan.matrices) {
    owned[static_cast<size_t>(matrix.owner)] += Elements(matrix);
  }
  return owned;
}

// Uneven shards, a stack, a fused parameter, and large beside small ones.
std::vector<MatrixParameter> Mixture(const std::string& mesh,
                                     const std::string& placement) {
  std::vector<MatrixParameter> parameters;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{7, 5}, std::vector<int64_t>{64, 64},
        std::vector<int64_t>{2, 9}, std::vector<int64_t>{40, 8},
        std::vector<int64_t>{8, 40}, std::vector<int64_t>{0, 4}}) {
    parameters.push_back(OnMesh(shape, shape[0], mesh, placement));
  }
  parameters.push_back(OnMesh({5, 6, 4}, 6, mesh, placement));
  parameters.push_back(OnMesh({12, 10}, 4, mesh, placement));
  return parameters;
}

TEST(MatrixPlan, DealsEveryMatrixOnceAndTheSameOnEveryRank) {
  const std::vector<MatrixPlan> plans =
      PlansOfAllRanks(Mixture("dp=3", "S(0)"));
  ASSERT_EQ(plans[0].matrices.size(), 5u + 5u + 3u);
  for (const MatrixPlan& plan : plans) {
    ASSERT_EQ(plan.matrices.size(), plans[0].matrices.size());
    for (size_t i = 0; i < plan.matrices.size(); ++i) {
      EXPECT_EQ(plan.matrices[i].owner, plans[0].matrices[i].owner);
      EXPECT_EQ(plan.matrices[i].is_local, plans[0].matrices[i].is_local);
    }
  }
  EXPECT_EQ(plans[0].matrices[0].box,
            (dcp::Box{.offsets = {0, 0}, .sizes = {7, 5}}));
  EXPECT_EQ(plans[0].matrices[6].box,
            (dcp::Box{.offsets = {1, 0, 0}, .sizes = {1, 6, 4}}));
  EXPECT_EQ(plans[0].matrices[11].box,
            (dcp::Box{.offsets = {4, 0}, .sizes = {4, 10}}));
}

TEST(MatrixPlan, SendsAndReceivesAgree) {
  for (const auto& [mesh, placement] :
       {std::pair("dp=4", "S(0)"), std::pair("dp=3", "S(1)"),
        std::pair("dp=2,tp=2", "R,S(0)"), std::pair("dp=2,tp=2", "S(0),S(1)"),
        std::pair("dp=2,tp=3", "SS(0,3),S(0)")}) {
    SCOPED_TRACE(absl::StrCat(mesh, " ", placement));
    const std::vector<MatrixPlan> plans =
        PlansOfAllRanks(Mixture(mesh, placement));
    for (size_t a = 0; a < plans.size(); ++a) {
      for (size_t b = 0; b < plans.size(); ++b) {
        EXPECT_EQ(plans[a].sent[b], plans[b].received[a]);
        EXPECT_EQ(plans[a].answered[b], plans[b].updates[a]);
      }
    }
    // An owner gets each element of its matrices once.
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      int64_t expected = 0;
      for (const PlannedMatrix& matrix : plans[rank].matrices) {
        const bool is_mine = matrix.owner == static_cast<int64_t>(rank);
        if (is_mine && !matrix.is_local) expected += Elements(matrix);
      }
      EXPECT_EQ(std::accumulate(plans[rank].received.begin(),
                                plans[rank].received.end(), int64_t{0}),
                expected);
    }
  }
}

TEST(MatrixPlan, NoRankHasMoreThanItsShareAndOneMatrix) {
  for (const char* mesh : {"dp=2", "dp=3", "dp=4", "dp=7"}) {
    SCOPED_TRACE(mesh);
    std::vector<MatrixParameter> parameters;
    for (int64_t i = 1; i <= 30; ++i) {
      parameters.push_back(OnMesh({8 * i, 64}, 8 * i, mesh, "S(1)"));
    }
    const size_t num_ranks = parameters[0].boxes.size();
    const MatrixPlan plan =
        MakeMatrixPlan(parameters, static_cast<int64_t>(num_ranks), 0);
    const std::vector<int64_t> owned = OwnedElements(plan, num_ranks);
    const int64_t total =
        std::accumulate(owned.begin(), owned.end(), int64_t{0});
    const int64_t largest = 240 * 64;
    EXPECT_LE(*std::max_element(owned.begin(), owned.end()),
              total / static_cast<int64_t>(num_ranks) + largest);
    EXPECT_GT(*std::min_element(owned.begin(), owned.end()), 0);
  }
}

TEST(MatrixPlan, LeavesMatricesThatLieWholeOnARank) {
  const MatrixPlan plan =
      MakeMatrixPlan({OnMesh({4, 6, 5}, 6, "ep=2", "S(0)")}, 2, 1);
  std::vector<int64_t> owners;
  for (const PlannedMatrix& matrix : plan.matrices) {
    owners.push_back(matrix.owner);
    EXPECT_TRUE(matrix.is_local);
  }
  EXPECT_THAT(owners, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(plan.num_exchanged, 0u);
  EXPECT_THAT(plan.sent, Each(0));
  EXPECT_THAT(plan.updates, Each(0));
}

TEST(MatrixPlan, DividesReplicatedMatricesOverTheCopies) {
  std::vector<MatrixParameter> parameters(
      8, OnMesh({16, 16}, 16, "replicate=2,shard=2", "R,S(0)"));
  const std::vector<MatrixPlan> plans = PlansOfAllRanks(parameters);
  EXPECT_THAT(OwnedElements(plans[0], 4), Each(2 * 256));
  for (const MatrixPlan& plan : plans) {
    // Each copy sends to its own owners only, and every rank gets each update
    // of its shards.
    EXPECT_EQ(std::accumulate(plan.sent.begin(), plan.sent.end(), int64_t{0}),
              4 * 128);
    EXPECT_EQ(
        std::accumulate(plan.updates.begin(), plan.updates.end(), int64_t{0}),
        8 * 128);
  }
}

}  // namespace
}  // namespace fsdp
