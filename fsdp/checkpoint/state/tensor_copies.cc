// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/tensor_copies.h"

#include <iterator>
#include <utility>
#include <variant>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/local_parts.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

at::IntArrayRef DestinationShape(const TensorCopy& copy) {
  return copy.spec.has_value() ? at::IntArrayRef(copy.spec->shape)
                               : copy.dst.sizes();
}

// Whether the meshes have the same ranks in the same places; axis names do not
// matter.
bool SameGrid(const DeviceMesh& a, const DeviceMesh& b) {
  return a.shape() == b.shape() && a.ranks() == b.ranks();
}

// The problem with the source's kind; empty if there is none.
std::string WrongKind(const TensorCopy& copy, const CopyRules& rules) {
  if (const auto* src = copy.src.get_if<DTensor>()) {
    if (!copy.spec.has_value()) {
      return "is a DTensor, but a plain tensor is expected; give its "
             "full_tensor";
    }
    if (!SameGrid(src->device_mesh(), copy.spec->mesh)) {
      return "is a DTensor on another mesh; give its full_tensor, with "
             "full_state_dict, or load it from a checkpoint";
    }
    for (const Placement& placement : src->placements()) {
      if (placement.is_partial())
        return "is a DTensor with partial values; redistribute it first";
    }
    return "";
  }
  if (copy.src.get_if<at::Tensor>() == nullptr) {
    return absl::StrCat("is ", KindName(copy.src), ", not a tensor");
  }
  if (copy.spec.has_value() && !rules.full) {
    return "is a plain tensor, but a DTensor is expected; whole tensors "
           "require full_state_dict";
  }
  return "";
}

// The tensor that is read on this rank.
const at::Tensor& LocalSource(const TensorCopy& copy) {
  if (const auto* src = copy.src.get_if<DTensor>()) {
    return src->to_local();
  }
  return *copy.src.get_if<at::Tensor>();
}

at::IntArrayRef SourceShape(const TensorCopy& copy) {
  if (const auto* src = copy.src.get_if<DTensor>()) return src->shape();
  return copy.src.get_if<at::Tensor>()->sizes();
}

std::string WrongValue(const TensorCopy& copy, const CopyRules& rules) {
  const at::Tensor& src = LocalSource(copy);
  if (!src.defined()) return "is undefined";
  if (SourceShape(copy) != DestinationShape(copy)) {
    return absl::StrCat("has shape ",
                        dcp::ShapeToString({SourceShape(copy).data(),
                                            SourceShape(copy).size()}),
                        ", but ",
                        dcp::ShapeToString({DestinationShape(copy).data(),
                                            DestinationShape(copy).size()}),
                        " is expected");
  }
  if (src.is_complex() && !copy.dst.is_complex()) {
    return "is complex, but real numbers are expected";
  }
  if (src.is_meta() && !rules.values_elsewhere) {
    return "is on the meta device: it has no values";
  }
  if (copy.dst.is_meta()) {
    return "would be copied to a tensor on the meta device; call "
           "fsdp::to_empty first";
  }
  return "";
}

}  // namespace

absl::Status Mismatches::ToStatus(absl::string_view what) const {
  std::vector<std::string> parts;
  if (!missing.empty()) {
    parts.push_back(absl::StrCat("missing: ", absl::StrJoin(missing, ", ")));
  }
  if (!unexpected.empty()) {
    parts.push_back(
        absl::StrCat("unexpected: ", absl::StrJoin(unexpected, ", ")));
  }
  parts.insert(parts.end(), wrong.begin(), wrong.end());
  if (parts.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", absl::StrJoin(parts, "; "));
  return unexpected.empty() && wrong.empty() ? absl::NotFoundError(text)
                                             : absl::InvalidArgumentError(text);
}

absl::string_view KindName(const StateValue& value) {
  constexpr absl::string_view kNames[] = {
      "None",     "a bool",    "an int", "a float", "a text", "bytes",
      "a tensor", "a DTensor", "a list", "a tuple", "a dict", "a Stateful"};
  static_assert(std::size(kNames) == std::variant_size_v<StateValue::Variant>);
  return kNames[value.variant().index()];
}

void CheckCopy(const TensorCopy& copy, const CopyRules& rules,
               Mismatches& mismatches) {
  std::string wrong = WrongKind(copy, rules);
  if (wrong.empty()) wrong = WrongValue(copy, rules);
  if (wrong.empty()) return;
  mismatches.wrong.push_back(absl::StrCat(copy.name, " ", wrong));
}

at::Tensor BoxView(const at::Tensor& whole, const dcp::Box& box) {
  at::Tensor view = whole;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d),
                       box.sizes[d] == 0 ? 0 : box.offsets[d], box.sizes[d]);
  }
  return view;
}

absl::StatusOr<std::vector<LocalPart>> FindDestinationParts(
    const TensorCopy& copy) {
  const at::Tensor dst = copy.dst.detach();
  if (!copy.spec.has_value()) {
    return std::vector<LocalPart>{
        {dcp::WholeBox({dst.sizes().data(), dst.sizes().size()}), dst}};
  }
  return CatchTorch([&] { return FindLocalParts(DTensor(dst, *copy.spec)); });
}

absl::Status RunCopy(const TensorCopy& copy) {
  const auto run = [&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    if (const auto* src = copy.src.get_if<DTensor>()) {
      const bool same = src->placements() == copy.spec->placements;
      const at::Tensor local =
          same ? src->to_local()
               : src->redistribute(copy.spec->placements).to_local();
      if (!local.is_same(copy.dst)) copy.dst.detach().copy_(local);
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(const std::vector<LocalPart> parts,
                         FindDestinationParts(copy));
    for (const LocalPart& part : parts) {
      part.local.copy_(BoxView(*copy.src.get_if<at::Tensor>(), part.box));
    }
    return absl::OkStatus();
  };
  return dcp::Annotate(CatchTorch(run), copy.name);
}

}  // namespace fsdp
