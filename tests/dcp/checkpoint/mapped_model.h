// SPDX-License-Identifier: Apache-2.0
// A small model with tensors made from another model's: fused, split, stacked,
// transposed, permuted, interleaved and padded. The stored tensors lie in two
// files, cut into chunks; the results are also computed element by element. One
// thread.
#ifndef TESTS_DCP_CHECKPOINT_MAPPED_MODEL_H_
#define TESTS_DCP_CHECKPOINT_MAPPED_MODEL_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "tests/testing/sample_state.h"

namespace dcp::testing {

// How the stored tensors are cut: after this many rows, or into two halves
// along the last dimension.
struct StoredCut {
  int64_t rows_per_chunk = 1 << 20;
  bool in_columns = false;
};

// The piece that transposes a stored matrix with this shape.
StridedPiece Transposition(uint32_t source, const Dims& shape);

class MappedModel {
 public:
  // An element in a stored tensor.
  struct Origin {
    uint32_t source;
    Dims index;
  };

  struct Made {
    std::string fqn;
    std::unique_ptr<const MappedTensor> mapped;
    std::string bytes;  // row-major

    // The elements in `box`, row-major, copied one by one.
    std::string BytesOf(const Box& box) const;
  };

  MappedModel(FileSystem& fs, DType dtype, const StoredCut& cut);

  // Adds every kind of tensor.
  void AddEveryKind();
  // Adds a transposed matrix; the stored one has this shape.
  void AddTransposed(absl::string_view fqn, const Dims& shape);

  // Writes the files. Nothing may be added afterwards.
  void Write();

  const std::list<Made>& made() const { return made_; }
  SourceFiles& files() { return files_; }
  uint64_t num_stored_bytes() const;

 private:
  uint32_t AddStored(absl::string_view fqn, const Dims& shape);
  // Adds a tensor; `origin` returns each element's source, without pieces;
  // nullopt is a zero.
  void AddMade(
      absl::string_view fqn, const Dims& shape,
      const std::vector<StridedPiece>& pieces,
      absl::FunctionRef<std::optional<Origin>(const Dims& index)> origin);
  void AddFused();
  void AddSplit();
  void AddExperts();
  void AddRotary();
  void AddInterleaved();
  void AddPadded();

  FileSystem& fs_;
  const DType dtype_;
  const StoredCut cut_;
  std::list<SampleTensor> stored_;
  std::list<TensorEntry> entries_;  // parallel to stored_
  std::list<Made> made_;
  std::string contents_[2];  // each file's
  SourceFiles files_;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_MAPPED_MODEL_H_
