// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/ranks/flat_optimizer.h"
#include "dcp/checkpoint/dialects/ranks/flat_vector.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/rank_tensor.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// One rank's part of one flat parameter, or of a view.
struct Piece {
  Value tensor;  // None if it has nothing
  int64_t begin = 0;
  int64_t size = 0;
};

class FlatModel {
 public:
  FlatModel(const RankState& model, const FlatHints& hints)
      : state_(model), hints_(hints) {}

  absl::Status Read() {
    for (const RankFile& file : state_.part->files) {
      DCP_ASSIGN_OR_RETURN(const Value value, state_.Get(file));
      DCP_RETURN_IF_ERROR(Annotate(ReadRank(file, value), file.name));
    }
    FindViews();
    return views_.empty() ? MakeUnits() : MakeViews();
  }

  // Adds the model to the collector and takes it out of the files.
  absl::Status Take(ValueArena& arena, StateCollector& collector) const;

  // The vectors by the optimizer's numbers, which follow the vectors' order;
  // nullopt if their counts differ.
  std::optional<FlatVectors> Vectors(const Value& optimizer) const;

  std::string Advice() const {
    if (hints_.has_layout || (hints_.has_like && !views_.empty())) return "";
    return views_.empty()
               ? absl::StrCat("flat parameters of FSDP1 instead of weights: ",
                              ToText({"layout"}),
                              " names the parameters in them")
               : absl::StrCat(
                     "flat parameters of FSDP1: the weights lack their shapes, "
                     "which ",
                     ToText({"like"}), " or ", ToText({"layout"}), " gives");
  }

 private:
  using ByName = absl::flat_hash_map<absl::string_view, Value>;

  absl::Status ReadRank(const RankFile& file, const Value& value);
  absl::StatusOr<Piece> ReadFlat(const RankFile& file, const std::string& name,
                                 const Value& value);
  absl::Status TakePieces(const RankFile& file,
                          const std::vector<Piece>& pieces,
                          StateCollector& collector) const;
  void FindViews();
  bool IsView(absl::string_view name) const;
  // Rank `r`'s piece of `name`, which is a view on all ranks.
  Piece ViewOn(size_t r, absl::string_view name, int64_t begin) const;
  absl::Status MakeViews();
  absl::Status MakeUnits();

  const RankState& state_;
  const FlatHints& hints_;
  std::vector<std::string> flats_;  // in rank 0's order
  std::vector<int64_t> numels_;     // parallel to flats_
  std::vector<ByName> by_name_;     // by rank
  // By rank: the keys of the storages that hold flat parameters.
  std::vector<absl::flat_hash_set<absl::string_view>> storages_;
  std::vector<std::vector<Piece>> flat_pieces_;  // by rank, parallel to flats_
  std::vector<std::string> views_;               // in rank 0's order
  // The views, or else the flat parameters, and each rank's pieces.
  std::vector<FlatVector> vectors_;
  std::vector<std::vector<Piece>> pieces_;  // by rank, parallel to vectors_
};

absl::StatusOr<Piece> FlatModel::ReadFlat(const RankFile& file,
                                          const std::string& name,
                                          const Value& value) {
  absl::StatusOr<RankTensor> tensor = ParseRankTensor(value);
  if (!tensor.ok()) return Annotate(tensor.status(), name);
  DCP_RETURN_IF_ERROR(Annotate(CheckOwner(file, *tensor), name));
  if (tensor->shape.size() != 1 || tensor->pieces.size() > 1) {
    return absl::DataLossError(absl::StrCat(
        name, ": expected at most one piece of a vector, found ",
        tensor->pieces.size(), " of shape ", ShapeToString(tensor->shape)));
  }
  const size_t i = flat_pieces_.back().size();
  if (numels_.size() == i) numels_.push_back(tensor->shape[0]);
  if (numels_[i] != tensor->shape[0]) {
    return absl::DataLossError(absl::StrCat(name, " has ", tensor->shape[0],
                                            " elements, but ", numels_[i],
                                            " according to rank 0"));
  }
  Piece piece;
  if (tensor->pieces.empty()) return piece;
  piece.tensor = tensor->pieces[0].tensor;
  piece.begin = tensor->pieces[0].box.offsets[0];
  piece.size = tensor->pieces[0].box.sizes[0];
  return piece;
}

absl::Status FlatModel::ReadRank(const RankFile& file, const Value& value) {
  const ByName& names = by_name_.emplace_back(ValuesByKey(value));
  auto& storages = storages_.emplace_back();
  flat_pieces_.emplace_back();
  if (!IsMapping(value)) {
    return absl::DataLossError(
        absl::StrCat("expected a state dict, found ", ToString(value, 60)));
  }
  const bool is_first = by_name_.size() == 1;
  for (size_t i = 0; i < value.items().size(); i += 2) {
    const Value& key = value.items()[i];
    if (is_first && key.is(Kind::kStr) && IsFlatName(key.text()) &&
        IsRankTensor(value.items()[i + 1])) {
      flats_.emplace_back(key.text());
    }
  }
  for (const std::string& flat : flats_) {
    const auto found = names.find(flat);
    if (found == names.end()) {
      return absl::DataLossError(absl::StrCat(flat, " is missing"));
    }
    DCP_ASSIGN_OR_RETURN(Piece piece, ReadFlat(file, flat, found->second));
    if (!piece.tensor.is_none()) {
      DCP_ASSIGN_OR_RETURN(const TorchTensor tensor, ParseTensor(piece.tensor));
      storages.insert(tensor.storage_key);
    }
    flat_pieces_.back().push_back(piece);
  }
  return absl::OkStatus();
}

// A view is a tensor with one dimension, on each rank in a flat parameter's
// storage, unless it is empty there.
bool FlatModel::IsView(absl::string_view name) const {
  bool any = false;
  for (size_t r = 0; r < by_name_.size(); ++r) {
    const auto found = by_name_[r].find(name);
    if (found == by_name_[r].end() || IsRankTensor(found->second) ||
        !IsTensor(found->second)) {
      return false;
    }
    const absl::StatusOr<TorchTensor> tensor = ParseTensor(found->second);
    if (!tensor.ok() || tensor->sizes.size() != 1) return false;
    if (tensor->sizes[0] == 0) continue;
    if (!storages_[r].contains(tensor->storage_key)) return false;
    any = true;
  }
  return any;
}

void FlatModel::FindViews() {
  const absl::StatusOr<Value> first = state_.Get(state_.part->files[0]);
  if (!first.ok()) return;
  for (size_t i = 0; i < first->items().size(); i += 2) {
    const Value& key = first->items()[i];
    if (key.is(Kind::kStr) && IsView(key.text())) {
      views_.emplace_back(key.text());
    }
  }
}

Piece FlatModel::ViewOn(size_t r, absl::string_view name, int64_t begin) const {
  Piece piece;
  const Value& value = by_name_[r].at(name);
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  if (!tensor.ok()) return piece;  // IsView has parsed it
  piece.tensor = value;
  piece.begin = begin;
  piece.size = tensor->sizes[0];
  return piece;
}

absl::Status FlatModel::MakeViews() {
  pieces_.resize(by_name_.size());
  for (const std::string& view : views_) {
    FlatVector& vector = vectors_.emplace_back();
    vector.name = view;
    for (size_t r = 0; r < by_name_.size(); ++r) {
      const Piece piece = ViewOn(r, view, vector.numel);
      vector.begins.push_back(piece.begin);
      vector.sizes.push_back(piece.size);
      if (__builtin_add_overflow(vector.numel, piece.size, &vector.numel)) {
        return absl::DataLossError(absl::StrCat(view, " is too large"));
      }
      pieces_[r].push_back(piece);
    }
    Dims shape = {vector.numel};
    if (hints_.has_layout || hints_.has_like) {
      DCP_ASSIGN_OR_RETURN(shape, hints_.FindShape(view, vector.numel));
    }
    vector.parameters = {{view, std::move(shape), 0, vector.numel}};
  }
  return absl::OkStatus();
}

absl::Status FlatModel::MakeUnits() {
  if (hints_.has_like && !hints_.has_layout) {
    return OptionError(
        absl::StatusCode::kInvalidArgument, OptionName{"like"},
        " gives shapes, but the checkpoint does not record the names of the "
        "parameters; use ",
        OptionName{"layout"});
  }
  for (size_t i = 0; i < flats_.size(); ++i) {
    FlatVector& vector = vectors_.emplace_back();
    vector.name = flats_[i];
    CutEvenly(numels_[i], static_cast<int64_t>(by_name_.size()), vector);
    if (hints_.has_layout) {
      DCP_ASSIGN_OR_RETURN(const FlatUnit* const unit,
                           hints_.Find(flats_[i], numels_[i]));
      vector.parameters = unit->parameters;
    } else {
      vector.parameters = {{flats_[i], {numels_[i]}, 0, numels_[i]}};
    }
  }
  pieces_ = flat_pieces_;
  return absl::OkStatus();
}

absl::Status FlatModel::TakePieces(const RankFile& file,
                                   const std::vector<Piece>& pieces,
                                   StateCollector& collector) const {
  const auto path_of = [&](const std::string& parameter) {
    StatePath path = state_.path;
    path.emplace_back(parameter);
    return path;
  };
  for (size_t i = 0; i < vectors_.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.tensor.is_none()) continue;
    const int64_t begin = vectors_[i].begins[static_cast<size_t>(file.rank)];
    if (piece.begin != begin) {
      return absl::DataLossError(absl::StrCat(
          vectors_[i].name, ": rank ", file.rank, " has the elements from ",
          piece.begin, " on, expected from ", begin, " on"));
    }
    DCP_ASSIGN_OR_RETURN(
        const TensorEntry tensor,
        TensorInArchive(*file.archive, piece.tensor, file.file, 0));
    DCP_RETURN_IF_ERROR(Annotate(
        AddFlatPiece(vectors_[i], file.rank, tensor, path_of, collector),
        vectors_[i].name));
  }
  return absl::OkStatus();
}

absl::Status FlatModel::Take(ValueArena& arena,
                             StateCollector& collector) const {
  absl::flat_hash_set<std::string> taken(flats_.begin(), flats_.end());
  taken.insert(views_.begin(), views_.end());
  for (size_t r = 0; r < by_name_.size(); ++r) {
    RankFile& file = state_.part->files[r];
    DCP_RETURN_IF_ERROR(
        Annotate(TakePieces(file, pieces_[r], collector), file.name));
    DCP_ASSIGN_OR_RETURN(const Value value, state_.Get(file));
    std::vector<Value> kept;
    for (size_t i = 0; i < value.items().size(); i += 2) {
      const Value& key = value.items()[i];
      if (key.is(Kind::kStr) && taken.contains(key.text())) continue;
      kept.insert(kept.end(), {key, value.items()[i + 1]});
    }
    state_.Set(arena, file, arena.Dict(kept));
  }
  return absl::OkStatus();
}

std::optional<FlatVectors> FlatModel::Vectors(const Value& optimizer) const {
  const std::optional<std::vector<int64_t>> numbers =
      OnlyGroupNumbers(optimizer);
  if (!numbers.has_value() || numbers->size() != vectors_.size()) {
    return std::nullopt;
  }
  FlatVectors vectors;
  for (size_t i = 0; i < numbers->size(); ++i) {
    vectors[(*numbers)[i]] = vectors_[i];
  }
  return vectors;
}

}  // namespace

bool IsFlatName(absl::string_view name) {
  return absl::EndsWith(name, "_flat_param");
}

bool HasFlatParameters(const Value& model) {
  if (!IsMapping(model)) return false;
  for (size_t i = 0; i < model.items().size(); i += 2) {
    const Value& key = model.items()[i];
    if (key.is(Kind::kStr) && IsFlatName(key.text()) &&
        IsRankTensor(model.items()[i + 1])) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<SourceLoss>> TakeFlatModel(
    const RankState& model, const RankState* optimizer, const FlatHints& hints,
    bool in_order, ValueArena& arena, StateCollector& collector) {
  std::vector<SourceLoss> losses;
  FlatModel flat(model, hints);
  DCP_RETURN_IF_ERROR(flat.Read());
  DCP_RETURN_IF_ERROR(flat.Take(arena, collector));
  if (optimizer != nullptr) {
    DCP_ASSIGN_OR_RETURN(const FlatVectors unnamed,
                         FindFlatOptimizer(*optimizer));
    DCP_ASSIGN_OR_RETURN(const Value first,
                         optimizer->Get(optimizer->part->files[0]));
    std::optional<FlatVectors> vectors = flat.Vectors(first);
    if (vectors.has_value() && !in_order && !HaveDistinctSizes(*vectors)) {
      vectors.reset();
      losses.push_back(NumberedOptimizer(/*has_order=*/true));
    }
    DCP_RETURN_IF_ERROR(
        TakeFlatOptimizer(*optimizer, vectors.has_value() ? *vectors : unnamed,
                          arena, collector));
  }
  if (!flat.Advice().empty()) {
    losses.push_back({.part = StatePart::kModel,
                      .needs_consent = true,
                      .text = flat.Advice()});
  }
  return losses;
}

}  // namespace dcp
