// SPDX-License-Identifier: Apache-2.0
// Chooses the values that an output holds, and names those that it leaves out.
// Tested by tests/dcp/checkpoint/convert/torch_rewrite_test.cc.
#include "dcp/checkpoint/convert/convert_entries.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/format/pickle/inert_value.h"

namespace dcp {
namespace {

// Nobody needs an output without tensors, except perhaps one with objects
// alone, if the format holds them.
absl::StatusOr<std::vector<OutputEntry>> CheckNotEmpty(
    std::vector<OutputEntry> entries, bool tensors_only,
    const Checkpoint& source, const ConvertPlan& plan) {
  if (plan.num_tensors > 0 || (plan.num_objects > 0 && !tensors_only)) {
    return entries;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "nothing would be written: none of the ", source.entries().size(),
      " entries of the source is selected and a tensor"));
}

// OK if the destination can hold an object that was not read, because the bytes
// can be copied as they are. Otherwise the reason.
absl::Status CheckCarried(const Checkpoint& source, Format to,
                          const ObjectEntry& object) {
  if (object.unreadable.ok()) return absl::OkStatus();
  // A part of an item or of a torch.save file has no length.
  if (to == Format::kDcp && source.format() == Format::kDcp &&
      object.item.length > 0) {
    return absl::OkStatus();
  }
  if (source.torch_archive() != nullptr && to == Format::kTorch &&
      CheckInert(object.value).ok()) {
    return absl::OkStatus();
  }
  return object.unreadable;
}

// Whether an unreadable object is one that frameworks keep next to the state
// that training needs, such as their options.
bool MayBeLost(const Checkpoint& source, const CheckpointEntry& entry) {
  if (source.dialect() <= Dialect::kTorch || entry.path.empty()) return false;
  const auto* const root = std::get_if<std::string>(&entry.path[0]);
  return root != nullptr && (*root == "extra" || *root == "common");
}

// The first few as "a: why, b: why, ...".
struct Unreadable {
  size_t count = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> some;

  void Add(absl::string_view fqn, const absl::Status& why) {
    if (++count == 1) code = why.code();
    if (some.size() < kMaxNamesShown) {
      some.push_back(absl::StrCat(fqn, ": ", why.message()));
    }
  }

  absl::Status ToStatus() const {
    if (count == 0) return absl::OkStatus();
    return OptionError(
        code, count == 1 ? "1 value" : absl::StrCat(count, " values"),
        " cannot be read: ", absl::StrJoin(some, "; "),
        count > some.size() ? "; ..." : "", "; ", OptionName{"drop_unreadable"},
        " leaves out what cannot be read");
  }
};

bool HoldsTensorsOnly(Format format) { return format == Format::kSafetensors; }

}  // namespace

std::vector<uint32_t> EntriesToLocate(const Checkpoint& source,
                                      absl::Span<const SelectedEntry> selected,
                                      Format to) {
  std::vector<uint32_t> wanted;
  for (const SelectedEntry& choice : selected) {
    const CheckpointEntry& entry = source.entries()[choice.entry];
    if (entry.tensor() != nullptr || !HoldsTensorsOnly(to)) {
      wanted.push_back(choice.entry);
    }
  }
  return wanted;
}

absl::StatusOr<std::vector<OutputEntry>> ConvertEntries(
    const Checkpoint& source, absl::Span<const SelectedEntry> selected,
    const ConvertOptions& options, ConvertPlan& plan) {
  const bool tensors_only = HoldsTensorsOnly(plan.to);
  std::vector<OutputEntry> entries;
  Unreadable unreadable;
  for (const SelectedEntry& choice : selected) {
    const CheckpointEntry& from = source.entries()[choice.entry];
    if (from.object() != nullptr && tensors_only) {
      plan.dropped.push_back(choice.fqn);
      continue;
    }
    if (from.object() != nullptr) {
      const absl::Status why = CheckCarried(source, plan.to, *from.object());
      if (!why.ok()) {
        if (!MayBeLost(source, from)) unreadable.Add(choice.fqn, why);
        plan.dropped.push_back(choice.fqn);
        continue;
      }
    }
    ++(from.tensor() != nullptr ? plan.num_tensors : plan.num_objects);
    entries.push_back({.fqn = choice.fqn,
                       .path = choice.path,
                       .tensor = from.tensor(),
                       .dtype = choice.dtype,
                       .object = from.object()});
  }
  if (plan.dropped.empty() || options.drop_non_tensors ||
      (!tensors_only && (options.drop_unreadable || unreadable.count == 0))) {
    return CheckNotEmpty(std::move(entries), tensors_only, source, plan);
  }
  if (!tensors_only) {
    return WithSide(Annotate(unreadable.ToStatus(), source.path()),
                    ErrorSide::kSource);
  }
  constexpr OptionName kDrops = {"drop_non_tensors"};
  return WithOptions(
      NonTensorsError(plan.dropped,
                      absl::StrCat(ToText(kDrops), " leaves them out")),
      {std::string(kDrops.field)});
}

}  // namespace dcp
