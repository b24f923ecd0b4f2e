// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/placement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

const char* Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "unknown";
}

}  // namespace

Placement Placement::normalized(int64_t ndim) const {
  if (!is_shard()) return *this;
  TORCH_CHECK_INDEX(-ndim <= dim_ && dim_ < ndim, to_string(*this),
                    " names a dimension that a tensor of ", ndim,
                    " dimensions does not have");
  Placement result = *this;
  if (result.dim_ < 0) result.dim_ += ndim;
  return result;
}

std::string to_string(const Placement& placement) {
  switch (placement.kind()) {
    case Placement::Kind::kReplicate:
      return "Replicate()";
    case Placement::Kind::kShard:
      return absl::StrCat("Shard(dim=", placement.dim(), ")");
    case Placement::Kind::kStridedShard:
      return absl::StrCat("_StridedShard(dim=", placement.dim(),
                          ", sf=", placement.split_factor(), ")");
    case Placement::Kind::kPartial:
      return absl::StrCat("Partial(", Name(placement.reduce_op()), ")");
  }
  return "unknown";
}

std::string to_string(c10::ArrayRef<Placement> placements) {
  const auto append = [](std::string* out, const Placement& placement) {
    absl::StrAppend(out, to_string(placement));
  };
  // A one-element tuple has a comma, as Python prints it.
  return absl::StrCat("(", absl::StrJoin(placements, ", ", append),
                      placements.size() == 1 ? ",)" : ")");
}

dcp::Placements to_dcp(c10::ArrayRef<Placement> placements) {
  dcp::Placements result;
  for (const Placement& placement : placements) {
    TORCH_CHECK_VALUE(!placement.is_partial(), to_string(placements),
                      " says which values add up, not which part of the "
                      "tensor a rank has: redistribute first");
    TORCH_CHECK_VALUE(placement.is_replicate() || placement.dim() >= 0,
                      to_string(placement),
                      " counts from the end: normalize it first");
    dcp::Placement& geometry = result.emplace_back();
    if (placement.is_replicate()) continue;
    geometry.kind = placement.kind() == Placement::Kind::kShard
                        ? dcp::Placement::Kind::kShard
                        : dcp::Placement::Kind::kStridedShard;
    geometry.dim = placement.dim();
    geometry.split_factor = placement.split_factor();
  }
  return result;
}

}  // namespace fsdp
