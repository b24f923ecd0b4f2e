// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/state_path.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/torch_tensor.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

std::string ElementText(const PathElement& element) {
  if (std::holds_alternative<int64_t>(element))
    return absl::StrCat(std::get<int64_t>(element));
  return std::get<std::string>(element);
}

// Whether Python's repr() of `text` is `text` between quotes.
bool IsPlainText(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c)) && c != '\\' &&
           c != '\'';
  });
}

// Python's str() for a key; nullopt for kinds with an unknown text.
std::optional<std::string> KeyText(const Value& key) {
  switch (key.kind()) {
    case Kind::kStr:
      return std::string(key.text());
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return ToString(key, kMaxNameBytes);
    case Kind::kTuple:
      for (const Value& item : key.items()) {
        if (item.is(Kind::kStr) && !IsPlainText(item.text())) {
          return std::nullopt;
        }
        if (!KeyText(item).has_value()) return std::nullopt;
      }
      return ToString(key, kMaxNameBytes);
    default:
      return std::nullopt;
  }
}

class Flattener {
 public:
  // `whole`: includes empty containers, and the steps to each leaf.
  explicit Flattener(bool whole) : whole_(whole) {}

  absl::StatusOr<std::vector<FlatValue>> Run(const Value& root) {
    DCP_RETURN_IF_ERROR(Visit(root));
    absl::flat_hash_set<absl::string_view> names;
    names.reserve(flat_.size());
    for (const FlatValue& leaf : flat_) {
      if (whole_ && IsMapping(leaf.value)) continue;
      if (names.insert(leaf.fqn).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two values have the name ", leaf.fqn));
    }
    return std::move(flat_);
  }

 private:
  absl::Status Visit(const Value& value);
  absl::Status VisitChild(const Value& container, const Value& key,
                          PathElement element, const Value& child);
  absl::Status AddLeaf(const Value& value);
  bool IsLeaf(const Value& value);
  bool HasNames(const Value& mapping);
  bool IsLeafList(const Value& list);

  const bool whole_;
  StatePath path_;
  std::vector<StateStep> steps_;
  std::string name_;
  uint64_t num_name_bytes_ = 0;
  std::vector<FlatValue> flat_;
  // Without this, lists within lists would be searched again at each level.
  absl::flat_hash_map<const void*, bool> leaf_lists_;
  absl::flat_hash_map<const void*, bool> named_;
};

// A mapping with keys that cannot be part of a name is one leaf.
bool Flattener::IsLeaf(const Value& value) {
  if (IsMapping(value)) return !path_.empty() && !HasNames(value);
  return !value.is(Kind::kList) || IsLeafList(value);
}

bool Flattener::HasNames(const Value& mapping) {
  const absl::Span<const Value> items = mapping.items();
  if (const auto it = named_.find(mapping.identity()); it != named_.end()) {
    return it->second;
  }
  bool named = true;
  for (size_t i = 0; named && i < items.size(); i += 2) {
    named = KeyText(items[i]).has_value();
  }
  named_.emplace(mapping.identity(), named);
  return named;
}

bool Flattener::IsLeafList(const Value& list) {
  if (const auto it = leaf_lists_.find(list.identity());
      it != leaf_lists_.end()) {
    return it->second;
  }
  const absl::Span<const Value> items = list.items();
  const bool leaf = std::all_of(
      items.begin(), items.end(),
      [&](const Value& item) { return !IsTensor(item) && IsLeaf(item); });
  leaf_lists_.emplace(list.identity(), leaf);
  return leaf;
}

absl::Status Flattener::AddLeaf(const Value& value) {
  num_name_bytes_ += name_.size();
  if (num_name_bytes_ > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the names together are longer than ", kMaxMetadataBytes, " bytes"));
  }
  flat_.push_back(
      {.fqn = name_, .path = path_, .value = value, .steps = steps_});
  return absl::OkStatus();
}

absl::Status Flattener::VisitChild(const Value& container, const Value& key,
                                   PathElement element, const Value& child) {
  const size_t length = name_.size();
  absl::StrAppend(&name_, path_.empty() ? "" : ".", ElementText(element));
  if (name_.size() > kMaxNameBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a name is longer than ", kMaxNameBytes, " bytes"));
  }
  path_.push_back(std::move(element));
  if (whole_) steps_.push_back({container, key});
  DCP_RETURN_IF_ERROR(Visit(child));
  if (whole_) steps_.pop_back();
  path_.pop_back();
  name_.resize(length);
  return absl::OkStatus();
}

absl::Status Flattener::Visit(const Value& value) {
  if (IsLeaf(value)) return AddLeaf(value);
  const absl::Span<const Value> items = value.items();
  if (items.empty() && whole_ && !path_.empty()) return AddLeaf(value);
  if (value.is(Kind::kList)) {
    for (size_t i = 0; i < items.size(); ++i) {
      DCP_RETURN_IF_ERROR(
          VisitChild(value, Value(), static_cast<int64_t>(i), items[i]));
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < items.size(); i += 2) {
    std::optional<std::string> key = KeyText(items[i]);
    if (!key.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the key ", ToString(items[i], 60), " in ",
                       name_.empty() ? "the state dict" : name_,
                       " cannot be part of a name"));
    }
    DCP_RETURN_IF_ERROR(
        VisitChild(value, items[i], *std::move(key), items[i + 1]));
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

absl::StatusOr<std::vector<FlatValue>> FlattenMapping(const Value& root,
                                                      bool whole) {
  if (!IsMapping(root)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a state dict must be a mapping, but this is ",
        IsTensor(root)
            ? "a single tensor"
            : absl::StrCat(KindName(root.kind()), ": ", ToString(root, 60)),
        "; give it a name in Python: torch.save({'NAME': torch.load(PATH)}, "
        "PATH)"));
  }
  return Flattener(whole).Run(root);
}

}  // namespace

absl::StatusOr<std::vector<FlatValue>> Flatten(const Value& root) {
  return FlattenMapping(root, /*whole=*/false);
}

absl::StatusOr<std::vector<FlatValue>> FlattenWhole(const Value& root) {
  return FlattenMapping(root, /*whole=*/true);
}

std::string PathToName(const StatePath& path) {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i) {
    absl::StrAppend(&name, i == 0 ? "" : ".", ElementText(path[i]));
  }
  return name;
}

StatePath RenamePath(const StatePath& path, absl::string_view new_name) {
  absl::string_view rest = new_name;  // not yet covered by elements
  size_t first = path.size();         // the first element that stays
  bool all = false;
  while (first > 0 && !all) {
    const std::string text = ElementText(path[first - 1]);
    all = rest == text;
    if (!all && !absl::ConsumeSuffix(&rest, absl::StrCat(".", text))) break;
    --first;
  }
  StatePath renamed;
  if (!all) renamed.emplace_back(std::string(rest));
  for (size_t i = first; i < path.size(); ++i) renamed.push_back(path[i]);
  renamed[0] = ElementText(renamed[0]);
  return renamed;
}

}  // namespace dcp
