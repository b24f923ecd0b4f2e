// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_optimizer.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/rank_tensor.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The element count for a tensor with one dimension; nullopt for others.
std::optional<int64_t> VectorLength(const Value& value) {
  if (!IsTensor(value)) return std::nullopt;
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  if (!tensor.ok() || tensor->sizes.size() != 1) return std::nullopt;
  return tensor->sizes[0];
}

// Whether a value can be a rank's piece, or a value that all pieces share.
bool MayBeFlat(const Value& value) {
  if (IsRankTensor(value)) return false;
  if (!IsTensor(value)) return true;
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  return tensor.ok() && tensor->sizes.size() <= 1;
}

// Each number's state as a span of key, value, key, value, ...
absl::Span<const Value> StatesIn(const Value& optimizer) {
  const std::optional<Value> state = FindKey(optimizer, "state");
  return state.has_value() && IsMapping(*state) ? state->items()
                                                : absl::Span<const Value>();
}

// The length of one number's pieces on one rank, 0 if it has none; nullopt if
// these are not pieces.
absl::StatusOr<std::optional<int64_t>> PieceLength(const Value& number,
                                                   const Value& state) {
  if (!number.is(Kind::kInt) || !IsMapping(state)) return std::nullopt;
  std::optional<int64_t> length;
  for (size_t i = 0; i < state.items().size(); i += 2) {
    const Value& value = state.items()[i + 1];
    if (!MayBeFlat(value)) return std::nullopt;
    const std::optional<int64_t> found = VectorLength(value);
    if (length.has_value() && found.has_value() && *length != *found) {
      return absl::DataLossError(
          absl::StrCat("the optimizer has ", *length, " elements and ", *found,
                       " elements of state ", number.int_value()));
    }
    if (found.has_value()) length = found;
  }
  return length.value_or(0);
}

// Sets where each rank's piece begins: they follow one another.
absl::Status JoinPieces(FlatVector& vector) {
  for (const int64_t size : vector.sizes) {
    vector.begins.push_back(vector.numel);
    if (__builtin_add_overflow(vector.numel, size, &vector.numel)) {
      return absl::DataLossError(
          absl::StrCat("the state ", vector.name, " is too large"));
    }
  }
  return absl::OkStatus();
}

// The outermost module that contains the parameter and that the glob matches.
// Empty if there is none.
std::string FindUnit(absl::string_view parameter, const GlobSet& glob) {
  for (size_t dot = parameter.find('.'); dot != absl::string_view::npos;
       dot = parameter.find('.', dot + 1)) {
    const absl::string_view module = parameter.substr(0, dot);
    if (glob.MatchesAny(module)) return std::string(module);
  }
  return "";
}

// The units in order: the unit with parameters outside of all modules first, if
// any. InvalidArgument if the shapes are absurdly large.
absl::StatusOr<std::vector<FlatVector>> GroupIntoUnits(
    const Parameters& parameters, absl::string_view unit_glob) {
  const GlobSet glob({std::string(unit_glob)});
  std::vector<FlatVector> units(1);
  absl::flat_hash_map<std::string, size_t> by_name{{"", 0}};
  for (const auto& [name, shape] : parameters) {
    const std::string module = FindUnit(name, glob);
    const auto [it, is_new] = by_name.emplace(module, units.size());
    if (is_new) units.emplace_back().name = module;
    FlatVector& unit = units[it->second];
    FlatParameter& added = unit.parameters.emplace_back();
    added = {name, shape, unit.numel, Volume(shape)};
    if (__builtin_add_overflow(unit.numel, added.numel, &unit.numel)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the unit ", module, " is too large"));
    }
  }
  if (units[0].parameters.empty()) units.erase(units.begin());
  return units;
}

absl::Status UseUnits(const Parameters& parameters,
                      const std::vector<int64_t>& numbers,
                      absl::string_view unit_glob, FlatVectors& vectors) {
  DCP_ASSIGN_OR_RETURN(std::vector<FlatVector> units,
                       GroupIntoUnits(parameters, unit_glob));
  if (units.size() != numbers.size()) {
    return OptionError(absl::StatusCode::kInvalidArgument,
                       OptionName{"flat_units"}, " '", unit_glob, "' gives ",
                       units.size(), " units, but the optimizer has ",
                       numbers.size(), " parameters");
  }
  FlatVectors named = vectors;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto found = named.find(numbers[i]);
    if (found == named.end()) continue;  // it has no state
    FlatVector& unit = units[i];
    CutEvenly(unit.numel, static_cast<int64_t>(found->second.sizes.size()),
              unit);
    for (const int64_t size : found->second.sizes) {
      if (size == unit.sizes[0]) continue;
      return OptionError(
          absl::StatusCode::kInvalidArgument, OptionName{"flat_units"}, " '",
          unit_glob, "' gives unit ", i, " (",
          unit.name.empty() ? "outside of all modules" : unit.name, ") ",
          unit.numel, " elements, ", unit.sizes[0],
          " on each rank, but the optimizer has ", size);
    }
    found->second = std::move(unit);
  }
  vectors = std::move(named);
  return absl::OkStatus();
}

// With use_orig_params=True, each number is one parameter; the pieces together
// are as long as the parameter. Without `in_order`, that must be true for one
// order only.
bool UseOrder(const Parameters& parameters, const std::vector<int64_t>& numbers,
              bool in_order, FlatVectors& vectors) {
  if (parameters.size() != numbers.size()) return false;
  if (!in_order && !HaveDistinctSizes(vectors)) return false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto found = vectors.find(numbers[i]);
    if (found != vectors.end() &&
        found->second.numel != Volume(parameters[i].second)) {
      return false;
    }
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto found = vectors.find(numbers[i]);
    if (found == vectors.end()) continue;
    FlatVector& vector = found->second;
    vector.name = parameters[i].first;
    vector.parameters = {{vector.name, parameters[i].second, 0, vector.numel}};
  }
  return true;
}

// `parameters` without matrices that are equal to one before them in rank 0's
// file, by the CRC-32 of their records.
Parameters WithoutCopies(const RankFile& file, const Value& model,
                         const Parameters& parameters) {
  const auto values = ValuesByKey(model);
  absl::flat_hash_set<std::string> seen;
  Parameters kept;
  for (const auto& [name, shape] : parameters) {
    const auto value = values.find(name);
    std::string content;
    if (value != values.end() && IsRankTensor(value->second) &&
        shape.size() > 1) {
      const absl::StatusOr<RankTensor> tensor = ParseRankTensor(value->second);
      if (tensor.ok() && tensor->pieces.size() == 1) {
        const absl::StatusOr<TensorEntry> local = TensorInArchive(
            *file.archive, tensor->pieces[0].tensor, file.file, 0);
        if (local.ok() && local->locations[0].record.length > 0) {
          content = absl::StrCat(ShapeToString(shape), " ",
                                 local->locations[0].record.length, " ",
                                 local->locations[0].record.crc);
        }
      }
    }
    if (content.empty() || seen.insert(content).second) {
      kept.emplace_back(name, shape);
    }
  }
  return kept;
}

absl::Status TakeState(const RankFile& file, const StatePath& prefix,
                       const FlatVector& vector, const Value& state,
                       StateCollector& collector) {
  for (size_t i = 0; i < state.items().size(); i += 2) {
    const Value& key = state.items()[i];
    const Value& value = state.items()[i + 1];
    if (!key.is(Kind::kStr)) {
      return absl::DataLossError(absl::StrCat("expected the name of a state, ",
                                              "found ", ToString(key, 40)));
    }
    const std::string name(key.text());
    const auto path_of = [&](const std::string& parameter) {
      StatePath path = prefix;
      path.insert(path.end(), {"state", parameter, name});
      return path;
    };
    if (VectorLength(value).has_value()) {
      DCP_ASSIGN_OR_RETURN(const TensorEntry piece,
                           TensorInArchive(*file.archive, value, file.file, 0));
      DCP_RETURN_IF_ERROR(Annotate(
          AddFlatPiece(vector, file.rank, piece, path_of, collector), name));
      continue;
    }
    DCP_ASSIGN_OR_RETURN(const CheckpointEntry entry,
                         EntryInArchive(*file.archive, value, file.file));
    for (const FlatParameter& parameter : vector.parameters) {
      DCP_RETURN_IF_ERROR(
          collector.AddValue(path_of(parameter.name), file.rank, entry));
    }
  }
  return absl::OkStatus();
}

// The names for the groups; a number that remains a number is left out.
absl::flat_hash_map<int64_t, std::vector<std::string>> NamesByNumber(
    const FlatVectors& vectors) {
  absl::flat_hash_map<int64_t, std::vector<std::string>> names;
  for (const auto& [number, vector] : vectors) {
    if (vector.name == absl::StrCat(number)) continue;
    for (const FlatParameter& parameter : vector.parameters) {
      names[number].push_back(parameter.name);
    }
  }
  return names;
}

}  // namespace

bool HaveDistinctSizes(const FlatVectors& vectors) {
  absl::flat_hash_set<int64_t> sizes;
  for (const auto& [number, vector] : vectors) {
    if (!sizes.insert(vector.numel).second) return false;
  }
  return true;
}

absl::StatusOr<FlatVectors> FindFlatOptimizer(const RankState& optimizer) {
  const std::vector<RankFile>& files = optimizer.part->files;
  FlatVectors vectors;
  if (files.size() < 2) return vectors;
  bool any_piece = false;
  for (size_t r = 0; r < files.size(); ++r) {
    DCP_ASSIGN_OR_RETURN(const Value value, optimizer.Get(files[r]));
    const absl::Span<const Value> states = StatesIn(value);
    for (size_t i = 0; i < states.size(); i += 2) {
      absl::StatusOr<std::optional<int64_t>> length =
          PieceLength(states[i], states[i + 1]);
      if (!length.ok()) return Annotate(length.status(), files[r].name);
      if (!length->has_value()) return FlatVectors();
      FlatVector& vector = vectors[states[i].int_value()];
      vector.sizes.resize(files.size());
      vector.sizes[r] = **length;
      any_piece = any_piece || **length > 0;
    }
  }
  if (!any_piece) return FlatVectors();
  for (auto& [number, vector] : vectors) {
    vector.name = absl::StrCat(number);
    DCP_RETURN_IF_ERROR(JoinPieces(vector));
    vector.parameters = {{vector.name, {vector.numel}, 0, vector.numel}};
  }
  return vectors;
}

absl::StatusOr<bool> NameFlatOptimizer(const RankFile& file, const Value& model,
                                       const Value& optimizer,
                                       const FlatOrder& order,
                                       FlatVectors& vectors) {
  const std::optional<std::vector<int64_t>> numbers =
      OnlyGroupNumbers(optimizer);
  if (!numbers.has_value()) return false;
  const Parameters all = SavedParameters(model);
  const Parameters untied = WithoutCopies(file, model, all);
  if (order.unit_glob.empty()) {
    return UseOrder(all, *numbers, order.in_order, vectors) ||
           UseOrder(untied, *numbers, order.in_order, vectors);
  }
  const absl::Status status = UseUnits(all, *numbers, order.unit_glob, vectors);
  if (status.ok()) return true;
  if (!UseUnits(untied, *numbers, order.unit_glob, vectors).ok()) return status;
  return true;
}

absl::Status TakeFlatOptimizer(const RankState& optimizer,
                               const FlatVectors& vectors, ValueArena& arena,
                               StateCollector& collector) {
  const auto names = NamesByNumber(vectors);
  for (RankFile& file : optimizer.part->files) {
    DCP_ASSIGN_OR_RETURN(const Value value, optimizer.Get(file));
    const absl::Span<const Value> states = StatesIn(value);
    std::vector<Value> kept;
    for (size_t i = 0; i < states.size(); i += 2) {
      const auto found = states[i].is(Kind::kInt) && IsMapping(states[i + 1])
                             ? vectors.find(states[i].int_value())
                             : vectors.end();
      if (found == vectors.end()) {
        kept.insert(kept.end(), {states[i], states[i + 1]});
        continue;
      }
      DCP_RETURN_IF_ERROR(
          Annotate(TakeState(file, optimizer.path, found->second, states[i + 1],
                             collector),
                   file.name, ": state ", found->first));
    }
    std::vector<Value> items(value.items().begin(), value.items().end());
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr)) continue;
      if (items[i].text() == "state") items[i + 1] = arena.Dict(kept);
      if (items[i].text() == "param_groups") {
        items[i + 1] = GroupsWithNames(arena, items[i + 1], names);
      }
    }
    optimizer.Set(arena, file, arena.Dict(items));
  }
  return absl::OkStatus();
}

}  // namespace dcp
