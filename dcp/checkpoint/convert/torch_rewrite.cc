// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/torch_rewrite.h"

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/checkpoint/output/torch_output.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {
namespace {

const void* SourceIdentity(const CheckpointEntry& entry) {
  if (entry.tensor() != nullptr) return entry.tensor();
  return entry.object();
}

const void* SourceIdentity(const OutputEntry& entry) {
  if (entry.tensor != nullptr) return entry.tensor;
  return entry.object;
}

class TorchRewriter {
 public:
  TorchRewriter(Checkpoint& source, absl::string_view file_name)
      : source_(source),
        archive_(*source.torch_archive()),
        file_name_(file_name),
        storages_(source.files()),
        copier_(arena_, substitute_) {}

  absl::StatusOr<Output> Run(absl::Span<const OutputEntry> entries,
                             const SelectionOptions& selection) {
    DCP_ASSIGN_OR_RETURN(std::vector<FlatValue> leaves,
                         FlattenWhole(archive_.root));
    Match(entries, leaves);
    DCP_RETURN_IF_ERROR(MatchEmpty(selection, leaves));
    std::vector<FlatValue> kept;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!fates_[i].kept) continue;
      FlatValue& leaf = kept.emplace_back(std::move(leaves[i]));
      leaf.fqn = std::move(fates_[i].fqn);
      leaf.path = std::move(fates_[i].path);
      leaf.value = Rewrite(leaf.value, fates_[i]);
    }
    DCP_ASSIGN_OR_RETURN(
        const Value root,
        UnflattenLike(arena_, kept,
                      [this](const Value& value) { return Copy(value); }));
    DCP_RETURN_IF_ERROR(status_);
    if (copier_.lost()) {
      return absl::UnimplementedError(
          "an object refers to another one, outside itself, that is left out");
    }
    Output output =
        TorchFileOutput(file_name_, WritePickle(root), storages_.Take());
    output.own_tensors = std::move(whole_);
    return output;
  }

 private:
  // The treatment of a leaf.
  struct Fate {
    bool kept = false;
    std::string fqn;
    StatePath path;
    const TensorEntry* tensor = nullptr;
    DType dtype = DType::kFloat32;
  };

  // Pairs leaves with entries: the checkpoint's entries are the leaves, except
  // for empty containers, in the same order.
  void Match(absl::Span<const OutputEntry> entries,
             absl::Span<const FlatValue> leaves) {
    absl::flat_hash_map<const void*, const OutputEntry*> taken;
    for (const OutputEntry& entry : entries)
      taken[SourceIdentity(entry)] = &entry;
    fates_.resize(leaves.size());
    std::vector<Value> split;
    size_t next = 0;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (IsEmptyContainer(leaves[i])) continue;
      DCP_CHECK(next < source_.entries().size(), next);
      const CheckpointEntry& from = source_.entries()[next++];
      for (const auto& [identity, tensor] : StoredIn(from)) {
        tensors_.emplace(identity, tensor);
      }
      if (from.tensor() != nullptr) {
        tensors_.emplace(leaves[i].value.identity(), from.tensor());
      }
      const auto it = taken.find(SourceIdentity(from));
      if (it == taken.end()) {
        split.push_back(leaves[i].value);
        continue;
      }
      const OutputEntry& entry = *it->second;
      fates_[i] = {.kept = true,
                   .fqn = entry.fqn,
                   .path = entry.path,
                   .tensor = from.tensor(),
                   .dtype = entry.dtype};
      if (IsCast(fates_[i])) split.push_back(leaves[i].value);
    }
    SplitStorages(arena_.Tuple(split));
    DCP_CHECK(next == source_.entries().size(), next);
  }

  static bool IsEmptyContainer(const FlatValue& leaf) {
    return IsMapping(leaf.value) && leaf.value.items().empty();
  }

  static bool IsCast(const Fate& fate) {
    return fate.tensor != nullptr && fate.dtype != fate.tensor->dtype;
  }

  static std::vector<std::pair<const void*, const TensorEntry*>> StoredIn(
      const CheckpointEntry& entry) {
    std::vector<std::pair<const void*, const TensorEntry*>> stored;
    if (entry.object() == nullptr) return stored;
    for (const auto& [identity, tensor] : entry.object()->tensors) {
      stored.emplace_back(identity, &tensor);
    }
    return stored;
  }

  // An empty container is treated like a value with the same name.
  absl::Status MatchEmpty(SelectionOptions selection,
                          absl::Span<const FlatValue> leaves) {
    selection.allow_unmatched = true;
    selection.casts.clear();
    std::vector<CheckpointEntry> empty;
    std::vector<size_t> places;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!IsEmptyContainer(leaves[i])) continue;
      empty.push_back({.fqn = leaves[i].fqn,
                       .path = leaves[i].path,
                       .value = ObjectEntry()});
      places.push_back(i);
    }
    DCP_ASSIGN_OR_RETURN(std::vector<SelectedEntry> selected,
                         Select(empty, selection));
    for (SelectedEntry& choice : selected) {
      Fate& fate = fates_[places[choice.entry]];
      fate.kept = true;
      fate.fqn = std::move(choice.fqn);
      fate.path = std::move(choice.path);
    }
    return absl::OkStatus();
  }

  // Notes that the storages in `values` are not copied whole.
  void SplitStorages(const Value& values) {
    ForEachStorage(values, [this](const Value& inner) {
      const absl::StatusOr<TorchStorage> storage = ParseStorage(inner);
      if (storage.ok()) split_.insert(storage->key);
    });
  }

  Value Rewrite(const Value& value, const Fate& fate) {
    if (!IsCast(fate)) return Copy(value);
    // A value that has two names may get two types.
    const auto [it, is_new] =
        casts_.try_emplace({value.identity(), fate.dtype}, Value());
    if (is_new) it->second = OwnElements(value, *fate.tensor, fate.dtype);
    return it->second;
  }

  Value Copy(const Value& value) { return copier_.Copy(value); }

  Value OwnElements(const Value& value, const TensorEntry& tensor,
                    DType dtype) {
    const std::string key = absl::StrCat(storages_.Add(tensor, dtype));
    return ReplaceElements(arena_, value, dtype, key,
                           [this](const Value& part) { return Copy(part); });
  }

  std::optional<Value> Substitute(const Value& value) {
    if (value.is(Value::Kind::kPersistent)) return WholeStorage(value);
    if (!IsTensor(value)) return std::nullopt;
    const auto it = tensors_.find(value.identity());
    if (it == tensors_.end()) return std::nullopt;
    const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
    if (!tensor.ok()) return std::nullopt;
    if (!archive_.big_endian && !split_.contains(tensor->storage_key)) {
      return std::nullopt;
    }
    return OwnElements(value, *it->second, it->second->dtype);
  }

  std::optional<Value> WholeStorage(const Value& value) {
    const absl::StatusOr<TorchStorage> storage = ParseStorage(value);
    absl::StatusOr<TensorEntry> bytes =
        StorageInArchive(archive_, value, /*file=*/0, /*start=*/0);
    if (!storage.ok() || !bytes.ok()) {
      status_.Update(storage.ok() ? bytes.status() : storage.status());
      return Value();
    }
    const auto [it, is_new] = numbers_.try_emplace(storage->key, 0);
    if (is_new) {
      whole_.push_back(*std::move(bytes));
      it->second = storages_.Add(whole_.back(), whole_.back().dtype);
    }
    return RenameStorage(arena_, value, absl::StrCat(it->second));
  }

  Checkpoint& source_;
  const TorchArchive& archive_;
  const absl::string_view file_name_;
  ValueArena arena_;
  TorchStorages storages_;
  std::vector<Fate> fates_;  // parallel to the leaves
  // The source's tensors by the identity of their Value.
  absl::flat_hash_map<const void*, const TensorEntry*> tensors_;
  // keys of storages that are not copied whole
  absl::flat_hash_set<absl::string_view> split_;
  absl::flat_hash_map<std::pair<const void*, DType>, Value> casts_;
  std::list<TensorEntry> whole_;  // storages as tensors; they do not move
  absl::flat_hash_map<absl::string_view, size_t> numbers_;  // of those, by key
  absl::Status status_;
  // The copier keeps a reference to this callable.
  const std::function<std::optional<Value>(const Value&)> substitute_ =
      [this](const Value& value) { return Substitute(value); };
  ValueCopier copier_;
};

}  // namespace

absl::StatusOr<Output> RewriteTorchFile(Checkpoint& source,
                                        absl::Span<const OutputEntry> entries,
                                        const SelectionOptions& selection,
                                        absl::string_view file_name) {
  return TorchRewriter(source, file_name).Run(entries, selection);
}

}  // namespace dcp
