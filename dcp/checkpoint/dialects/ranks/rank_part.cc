// SPDX-License-Identifier: Apache-2.0
// Checks which rank owns a tensor, and reads and replaces state dicts.
// Tested by tests/dcp/checkpoint/dialects/ranks/flat_model_test.cc.
#include "dcp/checkpoint/dialects/ranks/rank_part.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {

absl::Status CheckOwner(const RankFile& file, const RankTensor& tensor) {
  if (tensor.world_size.value_or(file.world_size) != file.world_size ||
      tensor.rank.value_or(file.rank) != file.rank) {
    return absl::DataLossError(absl::StrCat(
        "the file belongs to rank ", file.rank, " of ", file.world_size,
        ", but the contents belong to rank ", tensor.rank.value_or(file.rank),
        " of ", tensor.world_size.value_or(file.world_size)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StateCollector::Part> MakePart(const RankFile& file,
                                              RankTensor tensor) {
  DCP_RETURN_IF_ERROR(CheckOwner(file, tensor));
  StateCollector::Part part;
  part.dtype = tensor.dtype;
  part.shape = std::move(tensor.shape);
  for (RankTensor::Piece& piece : tensor.pieces) {
    DCP_ASSIGN_OR_RETURN(
        const TensorEntry local,
        TensorInArchive(*file.archive, piece.tensor, file.file, 0));
    part.locations.push_back(
        NarrowToBox(local, {piece.offsets, piece.box.sizes}));
    part.boxes.push_back(std::move(piece.box));
  }
  return part;
}

absl::StatusOr<Value> RankState::Get(const RankFile& file) const {
  if (key.empty()) return file.root;
  const std::optional<Value> found = FindKey(file.root, key);
  if (found.has_value()) return *found;
  return absl::DataLossError(
      absl::StrCat("rank 0 has ", key, ", but rank ", file.rank, " has not"));
}

void RankState::Set(ValueArena& arena, RankFile& file, Value value) const {
  if (key.empty()) {
    file.root = value;
    return;
  }
  std::vector<Value> items(file.root.items().begin(), file.root.items().end());
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Value::Kind::kStr) && items[i].text() == key) {
      items[i + 1] = value;
    }
  }
  file.root = arena.Dict(items);
}

}  // namespace dcp
