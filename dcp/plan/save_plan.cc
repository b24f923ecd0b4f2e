// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/save_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Every rank number is the sum of a shard's and a replica's number. The ranks
// with the same shard hold the same boxes.
struct RankGroups {
  std::vector<int64_t> replicas;  // ranks with 0 on all axes but Replicate
  std::vector<int64_t> shards;    // ranks with 0 on the Replicate axes
};

// In increasing order, as mesh axes are row-major.
std::vector<int64_t> Extend(const std::vector<int64_t>& ranks, int64_t size,
                            int64_t stride) {
  std::vector<int64_t> result;
  result.reserve(ranks.size() * static_cast<size_t>(size));
  for (const int64_t rank : ranks) {
    for (int64_t i = 0; i < size; ++i) result.push_back(rank + i * stride);
  }
  return result;
}

RankGroups GroupRanks(const Mesh& mesh, const Placements& placements) {
  RankGroups groups{.replicas = {0}, .shards = {0}};
  int64_t stride = mesh.num_ranks();
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    stride /= mesh.axes[a].size;
    std::vector<int64_t>& ranks =
        placements[a].kind == Placement::Kind::kReplicate ? groups.replicas
                                                          : groups.shards;
    ranks = Extend(ranks, mesh.axes[a].size, stride);
  }
  return groups;
}

class SavePlanner {
 public:
  explicit SavePlanner(const Mesh& mesh)
      : mesh_(mesh),
        plans_(static_cast<size_t>(mesh.num_ranks())),
        num_bytes_(plans_.size(), 0) {}

  absl::Status Add(uint32_t index, const SaveItem& item) {
    if (!CheckedVolume(item.shape).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape ", ShapeToString(item.shape), " is negative or too large"));
    }
    // This also checks the placements, which GroupRanks relies on.
    DCP_RETURN_IF_ERROR(
        LocalBoxes(item.shape, mesh_, item.placements, mesh_.Coordinate(0))
            .status());
    if (item.placements != placements_) {
      placements_ = item.placements;
      groups_ = GroupRanks(mesh_, placements_);
    }
    seen_empty_.clear();
    for (const int64_t shard : groups_.shards) {
      DCP_ASSIGN_OR_RETURN(std::vector<Box> boxes,
                           LocalBoxes(item.shape, mesh_, item.placements,
                                      mesh_.Coordinate(shard)));
      for (Box& box : boxes) {
        Assign(index, item.element_bytes, shard, std::move(box));
      }
    }
    return absl::OkStatus();
  }

  std::vector<SavePlan> Finish() && { return std::move(plans_); }

 private:
  void Assign(uint32_t index, uint64_t element_bytes, int64_t shard, Box box) {
    const int64_t volume = Volume(box.sizes);
    size_t rank = static_cast<size_t>(shard);
    if (volume == 0) {
      // Other shards may be empty at the same place.
      if (!seen_empty_.emplace(box.offsets, box.sizes).second) return;
    } else {
      rank = LeastLoaded(shard);
      const uint64_t bytes =
          CheckedMul(static_cast<uint64_t>(volume), element_bytes)
              .value_or(std::numeric_limits<uint64_t>::max());
      num_bytes_[rank] = SaturatingAdd(num_bytes_[rank], bytes);
    }
    plans_[rank].push_back({.item = index, .box = std::move(box)});
  }

  // The least loaded rank among those that hold the shard of rank `shard`.
  size_t LeastLoaded(int64_t shard) const {
    size_t best = static_cast<size_t>(shard);
    for (const int64_t replica : groups_.replicas) {
      const auto rank = static_cast<size_t>(shard + replica);
      if (num_bytes_[rank] < num_bytes_[best]) best = rank;
    }
    return best;
  }

  const Mesh& mesh_;
  std::vector<SavePlan> plans_;
  std::vector<uint64_t> num_bytes_;  // per rank, so far
  // The last item's placements; the next item usually has the same ones.
  Placements placements_;
  RankGroups groups_{.replicas = {0}, .shards = {0}};
  absl::flat_hash_set<std::pair<Dims, Dims>> seen_empty_;  // for this item
};

}  // namespace

absl::StatusOr<std::vector<SavePlan>> PlanSave(absl::Span<const SaveItem> items,
                                               const Mesh& mesh) {
  SavePlanner planner(mesh);
  for (size_t i = 0; i < items.size(); ++i) {
    DCP_RETURN_IF_ERROR(
        Annotate(planner.Add(static_cast<uint32_t>(i), items[i]), "item ", i));
  }
  return std::move(planner).Finish();
}

}  // namespace dcp
