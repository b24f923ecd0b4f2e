// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/target_check.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/element.h"

namespace fsdp {
namespace {

std::string FindProblem(const dcp::MetadataEntry& wanted,
                        const StoredEntry& stored) {
  const auto* tensor = std::get_if<dcp::TensorStorageMetadata>(&wanted.value);
  if (tensor == nullptr) {
    return stored.is_tensor ? absl::StrCat(wanted.fqn,
                                           " is stored as a tensor, but "
                                           "requested as a plain value")
                            : "";
  }
  if (!stored.is_tensor) {
    return absl::StrCat(
        wanted.fqn, " is stored as a plain value, but requested as a tensor");
  }
  if (stored.shape != absl::MakeConstSpan(tensor->size)) {
    return absl::StrCat(wanted.fqn, " is stored as ",
                        dcp::ShapeToString(stored.shape), ", but requested as ",
                        dcp::ShapeToString(tensor->size));
  }
  if (!dcp::CanConvert(stored.dtype, tensor->dtype)) {
    return absl::StrCat(
        wanted.fqn, " is stored as ", dcp::TorchName(stored.dtype),
        ", which cannot be converted to ", dcp::TorchName(tensor->dtype));
  }
  return "";
}

}  // namespace

absl::StatusOr<absl::flat_hash_set<std::string>> CheckTargets(
    const CheckpointSource& source, absl::Span<const dcp::Metadata> ranks,
    bool allow_partial) {
  absl::flat_hash_set<std::string> absent;
  absl::flat_hash_set<std::string> seen;
  std::vector<std::string> missing;
  std::vector<std::string> unfit;
  for (const dcp::Metadata& rank : ranks) {
    for (const dcp::MetadataEntry& wanted : rank.entries) {
      const std::optional<StoredEntry> stored = source.Find(wanted.fqn);
      if (!stored.has_value()) {
        if (absent.insert(wanted.fqn).second) missing.push_back(wanted.fqn);
        continue;
      }
      std::string problem = FindProblem(wanted, *stored);
      if (!problem.empty() && !stored->made_of.empty()) {
        absl::StrAppend(&problem, " (made of ", stored->made_of, ")");
      }
      if (!problem.empty() && seen.insert(problem).second) {
        unfit.push_back(std::move(problem));
      }
    }
  }
  if (allow_partial) missing.clear();
  if (missing.empty() && unfit.empty()) return absent;
  std::sort(missing.begin(), missing.end());
  std::string message = absl::StrCat(source.path(), ": ");
  if (!missing.empty()) {
    absl::StrAppend(&message, "it lacks ", absl::StrJoin(missing, ", "),
                    source.NamesMade(), unfit.empty() ? "" : "; ");
  }
  absl::StrAppend(&message, absl::StrJoin(unfit, "; "));
  return unfit.empty() ? absl::NotFoundError(message)
                       : absl::InvalidArgumentError(message);
}

}  // namespace fsdp
