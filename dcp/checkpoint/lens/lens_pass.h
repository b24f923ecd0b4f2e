// SPDX-License-Identifier: Apache-2.0
// LensPass: computes a lensed tensor's elements in place, after the stored
// values have been put there. See [Note: lenses] in lensed_tensor.h. Used by
// one thread, which waits while tables are read.
#ifndef DCP_CHECKPOINT_LENS_LENS_PASS_H_
#define DCP_CHECKPOINT_LENS_LENS_PASS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The most bytes of tables held at once, in addition to the pool.
inline constexpr uint64_t kMaxLensTableBytes = uint64_t{32} << 20;

// The computed elements in `window` that belong to `part`, a piece. They are at
// `dst` as `type`.
struct LensedWindow {
  const LensedTensor* tensor;
  StridedPiece part;
  Window window;
  DType type;
  uint8_t* dst;
  uint64_t* num_beyond;  // optional: see TransformElements
};

class LensPass {
 public:
  // Reads a box from a table, in row-major order, to `dst` as the given type.
  using ReadTable = absl::FunctionRef<absl::Status(
      const LensTable& table, const Box& box, DType as, uint8_t* dst)>;

  // Whether the tensor's elements can be computed in `type`: it holds the
  // values exactly, so that they can be put in place, or, for a mean, all
  // values are read as tables.
  static bool Holds(const LensedTensor& tensor, DType type);

  // ResourceExhausted if the window needs more table bytes at once than may be
  // held; errors from `read`.
  absl::Status Run(const LensedWindow& work, ReadTable read);

 private:
  // A box from a table, as float32 or float64 in row-major order.
  struct Region {
    const LensTable* table = nullptr;
    Box box;
    Dims strides;  // elements
    std::vector<uint8_t> bytes;

    template <typename T>
    const T* values() const {
      return reinterpret_cast<const T*>(bytes.data());
    }
  };
  // Adjacent or evenly spread elements: row-major numbers in the lensed tensor,
  // and where they are.
  struct Stretch {
    uint64_t src;
    uint64_t src_stride;
    uint64_t count;
    uint8_t* dst;
    uint64_t dst_stride;
  };

  static void ForEachStretch(const LensedWindow& work,
                             absl::FunctionRef<void(const Stretch&)> visit);
  // The functions below compute in T: double for float64, float for all other
  // types.
  template <typename T>
  static void Compute(
      const LensedWindow& work, const Stretch& stretch,
      absl::FunctionRef<void(uint64_t src, std::span<T> values)> run);
  // Calls `run` with all elements in the window as T; `run` may change them.
  // Each call has a stretch of a row, and `number` is the row-major number of
  // the first element.
  template <typename T>
  static void ForEachInRow(
      const LensedWindow& work,
      absl::FunctionRef<void(uint64_t number, std::span<T> values)> run);
  absl::Status Scale(const LensedWindow& work, ReadTable read);
  template <typename T>
  absl::Status Adapt(const LensedWindow& work, ReadTable read);
  template <typename T>
  absl::Status Average(const LensedWindow& work, ReadTable read);
  static absl::Status Rescale(const LensedWindow& work);
  template <typename T>
  absl::Status AverageSome(const LensedWindow& work, ReadTable read);
  template <typename T>
  absl::StatusOr<const Region*> Get(const LensedTensor& tensor, size_t table,
                                    const Box& box, ReadTable read);

  // The last regions read: adjacent windows mostly need the same.
  std::vector<std::unique_ptr<const Region>> regions_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_LENS_PASS_H_
