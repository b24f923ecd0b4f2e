// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/diff/diff.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/diff/container_diff.h"
#include "dcp/checkpoint/read/tensor_comparison.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// One value in a checkpoint, flattened as far as possible: a tensor, or an
// object without tensors.
struct Leaf {
  const TensorEntry* tensor = nullptr;
  DType dtype = DType::kFloat32;
  Value value;
  bool inside_object = false;  // a tensor that is part of an object
  // An object that was not read: the item's bytes, or in a .pt file the
  // readable part.
  const ObjectEntry* unread = nullptr;
};

// A checkpoint as leaves by name. Checkpoints differ in how far they are
// flattened (older PyTorch keeps a dict of plain values whole), but equal
// values must still compare equal, so objects are flattened here.
class Side {
 public:
  absl::Status Open(FileSystem& fs, absl::string_view path,
                    const OpenOptions& open, SelectionOptions selection,
                    std::stop_token stop) {
    selection.allow_unmatched = true;
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
        Checkpoint::Open(fs, path, open, stop);
    if (!checkpoint.ok()) {
      return WithSide(checkpoint.status(), ErrorSide::kSource);
    }
    checkpoint_ = *std::move(checkpoint);
    DCP_ASSIGN_OR_RETURN(const std::vector<SelectedEntry> selected,
                         Select(checkpoint_->entries(), selection, stop));
    std::vector<uint32_t> wanted;
    for (const SelectedEntry& choice : selected) wanted.push_back(choice.entry);
    DCP_RETURN_IF_ERROR(
        WithSide(checkpoint_->Locate(wanted, stop), ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(
        CheckTies(fs, *checkpoint_,
                  {.memory_bytes = open.locate_memory_bytes, .stop = stop}));
    for (const SelectedEntry& choice : selected) {
      const CheckpointEntry& entry = checkpoint_->entries()[choice.entry];
      if (entry.tensor() != nullptr) {
        leaves_[choice.fqn] = {
            .tensor = entry.tensor(), .dtype = choice.dtype, .value = Value()};
      } else {
        DCP_RETURN_IF_ERROR(AddObject(choice.fqn, *entry.object()));
      }
    }
    return absl::OkStatus();
  }

  const absl::btree_map<std::string, Leaf>& leaves() const { return leaves_; }
  SourceFiles& files() { return checkpoint_->files(); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  // An object in a .pt file is compared by the contents of the pickle and the
  // bytes in the storages, others by the bytes in their items.
  void AddUnread(const std::string& fqn, const ObjectEntry& object) {
    const Value value = ValueOutsideTensors(fqn, object.value, object);
    Leaf& leaf = leaves_[fqn];
    leaf = {.value = value, .unread = &object};
    if (object.item.length == 0) return;
    TensorEntry& bytes = items_.emplace_back();
    bytes.dtype = leaf.dtype = DType::kUInt8;
    bytes.shape.push_back(static_cast<int64_t>(object.item.length));
    bytes.boxes.push_back(WholeBox(bytes.shape));
    ChunkLocation& location = bytes.locations.emplace_back();
    location.item = object.item;
    location.located = true;
    location.payload_offset = object.item.offset;
    leaf.tensor = &bytes;
  }

  absl::Status AddObject(const std::string& fqn, const ObjectEntry& object) {
    if (!object.unreadable.ok()) {
      AddUnread(fqn, object);
      return absl::OkStatus();
    }
    const Value key = arena_.Str(fqn);
    absl::StatusOr<std::vector<FlatValue>> flat =
        Flatten(arena_.Dict({key, object.value}));
    if (!flat.ok()) {
      return WithSide(Annotate(flat.status(), checkpoint_->path()),
                      ErrorSide::kSource);
    }
    for (const FlatValue& part : *flat) AddPart(part, object);
    return absl::OkStatus();
  }

  void AddPart(const FlatValue& part, const ObjectEntry& object) {
    const auto tensor = object.tensors.find(part.value.identity());
    if (tensor != object.tensors.end()) {
      leaves_[part.fqn] = {.tensor = &tensor->second,
                           .dtype = tensor->second.dtype,
                           .value = Value(),
                           .inside_object = true};
      return;
    }
    leaves_[part.fqn] = {
        .tensor = nullptr,
        .value = ValueOutsideTensors(part.fqn, part.value, object)};
  }

  // Makes each tensor in the object `value` a leaf, "name#0", and returns the
  // value with numbers in their places.
  Value ValueOutsideTensors(const std::string& name, const Value& value,
                            const ObjectEntry& object) {
    size_t num_tensors = 0;
    return CopyValue(arena_, value,
                     [&](const Value& inner) -> std::optional<Value> {
                       const auto it = object.tensors.find(inner.identity());
                       if (it == object.tensors.end()) return std::nullopt;
                       leaves_[absl::StrCat(name, "#", num_tensors++)] = {
                           .tensor = &it->second,
                           .dtype = it->second.dtype,
                           .value = Value(),
                           .inside_object = true};
                       return arena_.Str(absl::StrCat("tensor ", num_tensors));
                     });
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  ValueArena arena_;
  absl::btree_map<std::string, Leaf> leaves_;
  std::deque<TensorEntry> items_;  // for objects that were not read
};

// Two tensors to compare element by element.
struct Pair {
  std::string name;
  const TensorEntry* a;
  const TensorEntry* b;
  DType dtype;
  uint64_t num_elements;
  ElementDifference difference;
};

absl::Status CheckTolerance(const std::optional<Tolerance>& tolerance) {
  if (!tolerance.has_value()) return absl::OkStatus();
  for (const auto& [name, number] : {std::pair("atol", tolerance->atol),
                                     std::pair("rtol", tolerance->rtol)}) {
    // Written so that NaN is refused.
    if (number >= 0 && std::isfinite(number)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is ", number, "; it must be finite and not negative"));
  }
  return absl::OkStatus();
}

class Differ {
 public:
  Differ(FileSystem& fs, DiffOptions& options) : fs_(fs), options_(options) {}

  absl::StatusOr<DiffReport> Run(absl::string_view a, absl::string_view b) {
    OpenOptions open_a = options_.open;
    open_a.locate_memory_bytes = options_.memory_bytes;
    DCP_RETURN_IF_ERROR(
        a_.Open(fs_, a, open_a, options_.selection_a, options_.stop));
    OpenOptions open_b = options_.open_b;
    open_b.locate_memory_bytes = options_.memory_bytes;
    DCP_RETURN_IF_ERROR(
        b_.Open(fs_, b, open_b, options_.selection_b, options_.stop));
    if (a_.leaves().empty() && b_.leaves().empty() &&
        !options_.selection_a.include.empty()) {
      return absl::InvalidArgumentError(
          "the include patterns match no name on either side");
    }
    AddWarnings("A: ", a_.checkpoint(), options_.selection_a);
    AddWarnings("B: ", b_.checkpoint(), options_.selection_b);
    exact_ = a_.checkpoint().torch_archive() != nullptr &&
             b_.checkpoint().torch_archive() != nullptr;
    CompareNames();
    CompareMetadata();
    if (options_.tensors_only) {
      report_.containers_skipped = "only tensors are compared";
    } else {
      DCP_RETURN_IF_ERROR(
          CompareContainers({a_.checkpoint(), options_.selection_a},
                            {b_.checkpoint(), options_.selection_b}, report_));
    }
    DCP_RETURN_IF_ERROR(CompareElementsOfPairs());
    for (Pair& pair : pairs_) {
      if (pair.difference.num_different == 0) {
        ++report_.num_tensors_equal;
        continue;
      }
      report_.findings.push_back(
          {.kind = DiffFinding::Kind::kValues,
           .name = std::move(pair.name),
           .in_a = "",
           .in_b = "",
           .difference = pair.difference,
           .num_elements = pair.num_elements,
           .first_index =
               IndexOfElement(pair.difference.first_different, pair.a->shape)});
    }
    std::stable_sort(report_.findings.begin(), report_.findings.end(),
                     [](const DiffFinding& x, const DiffFinding& y) {
                       return x.name < y.name;
                     });
    return std::move(report_);
  }

 private:
  void AddFinding(DiffFinding::Kind kind, const std::string& name,
                  std::string in_a = "", std::string in_b = "") {
    report_.findings.push_back({.kind = kind,
                                .name = name,
                                .in_a = std::move(in_a),
                                .in_b = std::move(in_b),
                                .difference = {}});
  }

  void AddWarnings(absl::string_view side, const Checkpoint& checkpoint,
                   const SelectionOptions& selection) {
    for (const SourceLoss& loss :
         LossesAbout(checkpoint.losses(), selection.parts)) {
      report_.warnings.push_back(absl::StrCat(side, loss.text));
    }
  }

  bool Skip(const Leaf& leaf) const {
    return options_.tensors_only &&
           (leaf.tensor == nullptr || leaf.unread != nullptr);
  }

  // If objects are not compared, a tensor inside one is compared only if the
  // other side has it too, perhaps under another name.
  bool SkipAlone(const Leaf& leaf) const {
    return Skip(leaf) || (options_.tensors_only && leaf.inside_object);
  }

  static std::string Describe(const Leaf& leaf) {
    if (leaf.unread != nullptr) return ToString(*leaf.unread, 80);
    if (leaf.tensor == nullptr) return ToString(leaf.value, 60);
    return absl::StrCat(TorchName(leaf.dtype), " ",
                        ShapeToString(leaf.tensor->shape));
  }

  void CompareNames() {
    for (const auto& [name, leaf] : a_.leaves()) {
      if (Skip(leaf)) continue;
      const auto other = b_.leaves().find(name);
      if (other == b_.leaves().end()) {
        if (SkipAlone(leaf)) continue;
        AddFinding(DiffFinding::Kind::kOnlyInA, name, Describe(leaf));
      } else {
        CompareLeaves(name, leaf, other->second);
      }
    }
    for (const auto& [name, leaf] : b_.leaves()) {
      if (SkipAlone(leaf) || a_.leaves().contains(name)) continue;
      AddFinding(DiffFinding::Kind::kOnlyInB, name, "", Describe(leaf));
    }
  }

  // Users who choose names ask for tensors.
  void CompareMetadata() {
    if (options_.tensors_only || !options_.selection_a.include.empty() ||
        a_.checkpoint().format() != Format::kSafetensors ||
        b_.checkpoint().format() != Format::kSafetensors) {
      return;
    }
    const auto a = ReadMetadata(a_.checkpoint());
    const auto b = ReadMetadata(b_.checkpoint());
    for (const auto& [key, value] : a) {
      const std::string name = absl::StrCat("__metadata__.", key);
      const auto other = b.find(key);
      if (other == b.end()) {
        AddFinding(DiffFinding::Kind::kOnlyInA, name, value);
      } else if (other->second != value) {
        AddFinding(DiffFinding::Kind::kObject, name, value, other->second);
      }
    }
    for (const auto& [key, value] : b) {
      if (a.contains(key)) continue;
      AddFinding(DiffFinding::Kind::kOnlyInB,
                 absl::StrCat("__metadata__.", key), "", value);
    }
  }

  static absl::btree_map<std::string, std::string> ReadMetadata(
      const Checkpoint& checkpoint) {
    absl::btree_map<std::string, std::string> metadata = {{"format", "pt"}};
    for (const auto& [key, value] : checkpoint.metadata()) {
      metadata[key] = value;
    }
    return metadata;
  }

  void CompareLeaves(const std::string& name, const Leaf& a, const Leaf& b) {
    if ((a.unread == nullptr) != (b.unread == nullptr) ||
        (a.unread != nullptr && (a.tensor == nullptr || b.tensor == nullptr) &&
         a.tensor != b.tensor)) {
      AddFinding(DiffFinding::Kind::kObject, name, Describe(a), Describe(b));
    } else if ((a.tensor == nullptr) != (b.tensor == nullptr)) {
      AddFinding(DiffFinding::Kind::kKind, name, Describe(a), Describe(b));
    } else if (a.tensor == nullptr) {
      if (DeepEqual(a.value, b.value, exact_)) {
        ++report_.num_objects_equal;
      } else {
        AddFinding(DiffFinding::Kind::kObject, name, Describe(a), Describe(b));
      }
    } else if (a.tensor->shape != b.tensor->shape) {
      AddFinding(DiffFinding::Kind::kShape, name, Describe(a), Describe(b));
    } else if (a.dtype != b.dtype) {
      AddFinding(DiffFinding::Kind::kDType, name, Describe(a), Describe(b));
    } else {
      const auto num = static_cast<uint64_t>(Volume(a.tensor->shape));
      report_.bytes_compared += num * ElementSize(a.dtype);
      pairs_.push_back({name, a.tensor, b.tensor, a.dtype, num, {}});
    }
  }

  absl::Status CompareElementsOfPairs() {
    if (options_.on_plan != nullptr) {
      options_.on_plan(2 * report_.bytes_compared);
    }
    TensorComparison comparison(a_.files(), b_.files(), options_.tolerance);
    for (const Pair& pair : pairs_)
      comparison.Add(*pair.a, *pair.b, pair.dtype);
    DCP_RETURN_IF_ERROR(
        comparison.Run(fs_, {.memory_bytes = options_.memory_bytes,
                             .stop = options_.stop,
                             .stats = options_.stats}));
    for (size_t i = 0; i < pairs_.size(); ++i) {
      pairs_[i].difference = comparison.difference(i);
    }
    return absl::OkStatus();
  }

  FileSystem& fs_;
  DiffOptions& options_;
  Side a_;
  Side b_;
  // Whether both sides distinguish dicts from similar containers.
  bool exact_ = false;
  DiffReport report_;
  std::vector<Pair> pairs_;
};

}  // namespace

absl::StatusOr<DiffReport> DiffCheckpoints(FileSystem& fs, absl::string_view a,
                                           absl::string_view b,
                                           DiffOptions options) {
  DCP_RETURN_IF_ERROR(CheckTolerance(options.tolerance));
  return Differ(fs, options).Run(a, b);
}

}  // namespace dcp
