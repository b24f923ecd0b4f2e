// SPDX-License-Identifier: Apache-2.0
// Layout: how an activation's value lies on the ranks of one mesh axis, and
// where a cut goes when dimensions are reordered, merged or split. Pure; any
// thread.
//
// [Note: layouts]
//   same      every rank has the whole value, and its gradient is the whole
//             gradient: an ordinary tensor.
//   shard     each rank has a part of one dimension; so has the gradient.
//   partial   the value is the sum of the ranks' tensors; each rank's gradient
//             is the whole gradient.
//   varying   every rank has the whole value, but uses it in a computation that
//             differs between ranks, so the gradient is the sum of theirs. No
//             user ever sees it: see Operand::Varying.
// These are JAX's "varying manual axes" (jax.shard_map) and the types in
// TorchTitan's spmd_types; each gradient's layout follows from the forward.
#ifndef FSDP_PARALLEL_SPMD_LAYOUT_H_
#define FSDP_PARALLEL_SPMD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/mesh/placement.h"

namespace fsdp::spmd {

// A tensor's sizes, in elements. In this folder they are the whole tensor's,
// unless a name says otherwise.
using Sizes = std::vector<int64_t>;

struct Layout {
  enum class Kind : uint8_t { kSame, kShard, kPartial };

  Kind kind = Kind::kSame;
  // For a shard, the dimension that is cut.
  int64_t dim = 0;
  // For a shard: how many equal blocks the dimension has; each is cut
  // separately. Merging [batch, cut sequence] makes `batch` blocks.
  int64_t blocks = 1;
  // For a shard: each block is cut into twice as many pieces as there are
  // ranks, and rank r has the pieces r and 2 * ranks - 1 - r, in this order.
  // Under causal attention every rank then has the same work.
  bool balanced = false;

  static Layout Same() { return {}; }
  static Layout Shard(int64_t dim, int64_t blocks = 1, bool balanced = false) {
    return {Kind::kShard, dim, blocks, balanced};
  }
  static Layout Partial() { return {Kind::kPartial, 0, 1, false}; }

  bool is_same() const { return kind == Kind::kSame; }
  bool is_shard() const { return kind == Kind::kShard; }
  bool is_shard(int64_t d) const { return is_shard() && dim == d; }
  bool is_partial() const { return kind == Kind::kPartial; }

  // The same cut along another dimension.
  Layout At(int64_t d) const { return {kind, d, blocks, balanced}; }

  // The same cut along a dimension with so many blocks.
  Layout WithBlocks(int64_t number) const {
    return {kind, dim, number, balanced};
  }

  friend bool operator==(const Layout&, const Layout&) = default;
};

// "same", "partial", "shard(1)", "shard(0, blocks=4)".
std::string to_string(const Layout& layout);

// A placement's layout for a tensor with `ndim` dimensions. Throws
// c10::IndexError for a dimension that does not exist, c10::ValueError for a
// strided shard or a Partial that is not a sum.
Layout ToLayout(const Placement& placement, int64_t ndim);
// The nearest placement, for messages and users.
Placement NearestPlacement(const Layout& layout);

// The indices that a rank holds along the cut dimension, which has `length`, in
// the part's order.
struct Piece {
  int64_t begin;
  int64_t length;
};
std::vector<Piece> RankPieces(int64_t length, const Layout& shard,
                              int64_t ranks, int64_t rank);
// How many indices those are.
int64_t PartLength(int64_t length, const Layout& shard, int64_t ranks,
                   int64_t rank);
// The sizes of a rank's part of a tensor with `whole` sizes.
Sizes PartSizes(const Sizes& whole, const Layout& layout, int64_t ranks,
                int64_t rank);

// Where the cut lies after a tensor with sizes `from` is viewed as `to`, so
// that each rank can view a part by itself; nullopt if the parts would not be a
// cut along one dimension.
std::optional<Layout> Reshaped(const Sizes& from, const Layout& cut,
                               const Sizes& to, int64_t ranks);

// Fills in a -1 in `to`, a shape for `numel` elements.
Sizes WithInferred(Sizes to, int64_t numel);

// The product of sizes [begin, end).
int64_t SizesProduct(const Sizes& sizes, size_t begin, size_t end);
inline int64_t ElementCount(const Sizes& sizes) {
  return SizesProduct(sizes, 0, sizes.size());
}
// `dim` counted from the front.
inline int64_t NonNegative(int64_t dim, int64_t ndim) {
  return dim < 0 ? dim + ndim : dim;
}

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_LAYOUT_H_
