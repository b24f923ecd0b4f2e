// SPDX-License-Identifier: Apache-2.0
// MatrixPlan: which rank orthogonalizes which matrix, and which pieces of the
// matrices travel between ranks for that. A pure function of shapes and
// placements, so that every rank makes the same plan without communication. For
// muon_step.cc.
//
// A matrix that lies whole on a rank stays there. The others go to the ranks
// with the least work, but never to one that already has an equal share of all
// elements: no rank has more than that share and one matrix, or than it holds
// anyway.
#ifndef FSDP_OPTIM_MATRIX_PLAN_H_
#define FSDP_OPTIM_MATRIX_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dcp/tensor/box.h"

namespace fsdp {

// A parameter's matrices, and how they lie on the ranks of a group.
struct MatrixParameter {
  std::vector<int64_t> shape;  // the whole parameter's: two or three dimensions
  int64_t rows_per_matrix;     // divides the last but one dimension
  // By rank: the parts of the parameter that it holds.
  std::vector<std::vector<dcp::Box>> boxes;
  // By rank: the number of a copy. Ranks with the same number hold the whole
  // parameter together, each element once.
  std::vector<int64_t> copies;
};

struct PlannedMatrix {
  size_t parameter;  // the index in the list
  dcp::Box box;      // in the whole parameter
  int64_t owner;     // the rank that orthogonalizes it
  // No other rank holds a part of it: nothing travels.
  bool is_local = false;
};

// What one rank holds of a matrix that another orthogonalizes, or the same
// rank.
struct MatrixPiece {
  size_t matrix;  // the index in MatrixPlan::matrices
  dcp::Box box;   // in the whole parameter
  // Where it lies among the elements that go to the owner, and in the answer;
  // the first is -1 if another copy's rank sends the same elements.
  int64_t offset = -1;
  int64_t answer_offset = 0;
};

struct MatrixPlan {
  std::vector<PlannedMatrix> matrices;
  // By the owner's rank: the pieces that this rank holds. Not of local
  // matrices.
  std::vector<MatrixPiece> held;
  // By the holder's rank: the pieces of matrices that this rank owns.
  std::vector<MatrixPiece> owned;
  // By rank: how many elements this rank sends to the owners and gets as an
  // owner, and the same for the answers.
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  std::vector<int64_t> answered;
  std::vector<int64_t> updates;
  // On all ranks together: matrices that are not local.
  size_t num_exchanged = 0;
};

// The plan of rank `rank` among `num_ranks`.
MatrixPlan MakeMatrixPlan(const std::vector<MatrixParameter>& parameters,
                          int64_t num_ranks, int64_t rank);

}  // namespace fsdp

#endif  // FSDP_OPTIM_MATRIX_PLAN_H_
