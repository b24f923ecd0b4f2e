// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/matrix_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace fsdp {
namespace {

// The ranks that may orthogonalize a matrix; empty: all.
using Candidates = std::vector<int64_t>;

void AddMatrices(size_t index, const MatrixParameter& parameter,
                 std::vector<PlannedMatrix>& matrices) {
  const size_t num_dims = parameter.shape.size();
  const int64_t rows = parameter.shape[num_dims - 2];
  const int64_t columns = parameter.shape[num_dims - 1];
  if (rows == 0 || columns == 0) return;
  const int64_t num_stacked = num_dims == 3 ? parameter.shape[0] : 1;
  for (int64_t stacked = 0; stacked < num_stacked; ++stacked) {
    for (int64_t row = 0; row < rows; row += parameter.rows_per_matrix) {
      dcp::Box box{.offsets = {row, 0},
                   .sizes = {parameter.rows_per_matrix, columns}};
      if (num_dims == 3) {
        box.offsets.insert(box.offsets.begin(), stacked);
        box.sizes.insert(box.sizes.begin(), 1);
      }
      matrices.push_back({.parameter = index, .box = box, .owner = -1});
    }
  }
}

// The multiplications of one step, up to a factor.
double Work(const PlannedMatrix& matrix) {
  const size_t num_dims = matrix.box.sizes.size();
  const auto [narrow, wide] = std::minmax(matrix.box.sizes[num_dims - 2],
                                          matrix.box.sizes[num_dims - 1]);
  const auto short_side = static_cast<double>(narrow);
  return short_side * short_side *
         (2.0 * static_cast<double>(wide) + short_side);
}

// The ranks that hold all of a matrix.
Candidates WholeHolders(const PlannedMatrix& matrix,
                        const MatrixParameter& parameter) {
  Candidates holders;
  for (size_t rank = 0; rank < parameter.boxes.size(); ++rank) {
    for (const dcp::Box& box : parameter.boxes[rank]) {
      if (!dcp::Contains(box, matrix.box)) continue;
      holders.push_back(static_cast<int64_t>(rank));
    }
  }
  return holders;
}

// Deals matrices to ranks.
class Owners {
 public:
  Owners(const std::vector<PlannedMatrix>& matrices, int64_t num_ranks)
      : elements_(num_ranks), work_(num_ranks), all_(num_ranks) {
    int64_t total = 0;
    for (const PlannedMatrix& matrix : matrices) {
      total += dcp::Volume(matrix.box.sizes);
    }
    share_ = (total + num_ranks - 1) / num_ranks;
    std::iota(all_.begin(), all_.end(), 0);
  }

  int64_t Choose(const PlannedMatrix& matrix, const Candidates& candidates) {
    const Candidates& ranks = candidates.empty() ? all_ : candidates;
    const int64_t owner = *std::min_element(
        ranks.begin(), ranks.end(),
        [this](int64_t a, int64_t b) { return Rating(a) < Rating(b); });
    elements_[owner] += dcp::Volume(matrix.box.sizes);
    work_[owner] += Work(matrix);
    return owner;
  }

 private:
  // Less is better.
  std::tuple<bool, double, int64_t, int64_t> Rating(int64_t rank) const {
    return {elements_[rank] >= share_, work_[rank], elements_[rank], rank};
  }

  std::vector<int64_t> elements_;  // by rank
  std::vector<double> work_;       // by rank
  Candidates all_;
  int64_t share_;
};

void ChooseOwners(const std::vector<MatrixParameter>& parameters,
                  int64_t num_ranks, std::vector<PlannedMatrix>& matrices) {
  std::vector<Candidates> candidates;
  for (const PlannedMatrix& matrix : matrices) {
    candidates.push_back(WholeHolders(matrix, parameters[matrix.parameter]));
  }
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), 0);
  // Those with the least choice first, then the largest.
  const auto key = [&](size_t i) {
    const size_t num = candidates[i].empty() ? static_cast<size_t>(num_ranks)
                                             : candidates[i].size();
    return std::tuple(num, -Work(matrices[i]), i);
  };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return key(a) < key(b); });
  Owners owners(matrices, num_ranks);
  for (const size_t i : order) {
    matrices[i].owner = owners.Choose(matrices[i], candidates[i]);
  }
}

// Fills the plan's lists of pieces.
class PieceLists {
 public:
  PieceLists(const std::vector<MatrixParameter>& parameters, int64_t num_ranks,
             int64_t rank, MatrixPlan& plan)
      : parameters_(parameters),
        num_ranks_(num_ranks),
        rank_(rank),
        plan_(plan) {}

  void Fill() {
    held_.resize(num_ranks_);
    owned_.resize(num_ranks_);
    for (size_t i = 0; i < plan_.matrices.size(); ++i) AddPieces(i);
    plan_.held = Join(held_, plan_.sent, plan_.updates);
    plan_.owned = Join(owned_, plan_.received, plan_.answered);
  }

 private:
  void AddPieces(size_t index) {
    PlannedMatrix& matrix = plan_.matrices[index];
    const MatrixParameter& parameter = parameters_[matrix.parameter];
    std::vector<std::pair<int64_t, dcp::Box>> parts;  // with their holders
    matrix.is_local = true;
    for (int64_t holder = 0; holder < num_ranks_; ++holder) {
      for (const dcp::Box& box : parameter.boxes[holder]) {
        std::optional<dcp::Box> common = dcp::Intersect(box, matrix.box);
        if (!common.has_value()) continue;
        matrix.is_local &= holder == matrix.owner && *common == matrix.box;
        parts.emplace_back(holder, *std::move(common));
      }
    }
    if (matrix.is_local) return;
    ++plan_.num_exchanged;
    for (auto& [holder, box] : parts) {
      const bool sends =
          parameter.copies[holder] == parameter.copies[matrix.owner];
      const MatrixPiece piece = {
          .matrix = index, .box = std::move(box), .offset = sends ? 0 : -1};
      if (holder == rank_) held_[matrix.owner].push_back(piece);
      if (matrix.owner == rank_) owned_[holder].push_back(piece);
    }
  }

  // One list, with offsets, and the numbers of elements by rank.
  static std::vector<MatrixPiece> Join(
      const std::vector<std::vector<MatrixPiece>>& by_rank,
      std::vector<int64_t>& elements, std::vector<int64_t>& answer_elements) {
    std::vector<MatrixPiece> joined;
    int64_t offset = 0;
    int64_t answer_offset = 0;
    for (const std::vector<MatrixPiece>& pieces : by_rank) {
      const int64_t begin = offset;
      const int64_t answer_begin = answer_offset;
      for (MatrixPiece piece : pieces) {
        const int64_t volume = dcp::Volume(piece.box.sizes);
        if (piece.offset != -1) {
          piece.offset = offset;
          offset += volume;
        }
        piece.answer_offset = answer_offset;
        answer_offset += volume;
        joined.push_back(std::move(piece));
      }
      elements.push_back(offset - begin);
      answer_elements.push_back(answer_offset - answer_begin);
    }
    return joined;
  }

  const std::vector<MatrixParameter>& parameters_;
  const int64_t num_ranks_;
  const int64_t rank_;
  MatrixPlan& plan_;
  std::vector<std::vector<MatrixPiece>> held_;   // by the owner's rank
  std::vector<std::vector<MatrixPiece>> owned_;  // by the holder's rank
};

}  // namespace

MatrixPlan MakeMatrixPlan(const std::vector<MatrixParameter>& parameters,
                          int64_t num_ranks, int64_t rank) {
  MatrixPlan plan;
  for (size_t i = 0; i < parameters.size(); ++i) {
    AddMatrices(i, parameters[i], plan.matrices);
  }
  ChooseOwners(parameters, num_ranks, plan.matrices);
  PieceLists(parameters, num_ranks, rank, plan).Fill();
  return plan;
}

}  // namespace fsdp
