// SPDX-License-Identifier: Apache-2.0
// A window is contiguous in the row-major bytes of the part. Therefore it is a
// range of indices along one dimension, d, with one index in each dimension
// before d and all indices in each dimension after d:
//
//   d is the first dimension where one index (with all dimensions after it) has
//   at most kWindowBytes; cuts are at multiples of `step` indices
//
//        d=1, step 3     | 0 1 2 | 3 4 5 | 6 7 |   <- row 0
//                        | 0 1 2 | 3 4 5 | 6 7 |   <- row 1
#include "server/reading/stream_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/tensor/placement.h"
#include "proto/error_detail.h"
#include "proto/messages/layout_messages.h"
#include "proto/messages/request_messages.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// Parts in one stream: enough for a model with a hundred thousand tensors and
// their optimizer state.
constexpr size_t kMaxParts = size_t{1} << 20;

// Problems that an error lists; the others are counted.
constexpr size_t kMaxProblems = 50;

class Problems {
 public:
  // `field` is the request field that has the problem.
  void Add(std::string problem, absl::string_view field) {
    if (num_ == 0) first_field_ = std::string(field);
    ++num_;
    if (shown_.size() < kMaxProblems) shown_.push_back(std::move(problem));
  }
  bool empty() const { return num_ == 0; }
  const std::string& first_field() const { return first_field_; }
  std::string ToText() const {
    std::string text = absl::StrJoin(shown_, "; ");
    if (num_ > shown_.size()) {
      absl::StrAppend(&text, "; and ", num_ - shown_.size(), " more");
    }
    return text;
  }

 private:
  size_t num_ = 0;
  std::vector<std::string> shown_;
  std::string first_field_;
};

class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, std::stop_token stop)
      : checkpoint_(checkpoint), stop_(std::move(stop)) {}

  absl::Status AddParts(const v1::ReadTensorsRequest::Parts& parts) {
    DCP_RETURN_IF_ERROR(CheckNumber(static_cast<size_t>(parts.parts_size())));
    for (int i = 0; i < parts.parts_size(); ++i) {
      DCP_RETURN_IF_ERROR(CheckStop());
      AddPart(parts.parts(i), absl::StrCat("parts.parts[", i, "]"));
    }
    return absl::OkStatus();
  }

  absl::Status AddRankParts(const v1::ReadTensorsRequest::RankParts& wanted) {
    DCP_ASSIGN_OR_RETURN(const Mesh mesh,
                         MeshFromProto(wanted.mesh(), "rank_parts.mesh"));
    DCP_ASSIGN_OR_RETURN(const Dims coordinate,
                         CoordinateFromProto(wanted.coordinate(), mesh,
                                             "rank_parts.coordinate"));
    DCP_ASSIGN_OR_RETURN(const std::vector<PlacementRule> rules,
                         PlacementRulesFromProto(wanted.placements(), mesh, {},
                                                 "rank_parts.placements"));
    DCP_ASSIGN_OR_RETURN(
        const SelectionOptions selection,
        SelectionFromProto(wanted.selection(), "rank_parts.selection"));
    absl::StatusOr<std::vector<SelectedEntry>> selected =
        Select(checkpoint_.entries(), selection, stop_);
    if (!selected.ok()) {
      return BlameField(Annotate(selected.status(), "rank_parts.selection"),
                        "rank_parts.selection");
    }
    std::vector<std::string> globs;
    for (const PlacementRule& rule : rules) globs.push_back(rule.glob);
    const GlobSet rule_globs(globs);
    for (SelectedEntry& choice : *selected) {
      DCP_RETURN_IF_ERROR(CheckStop());
      const TensorEntry* tensor = checkpoint_.entries()[choice.entry].tensor();
      if (tensor == nullptr) continue;
      Placements placements = DefaultPlacements(mesh, tensor->shape);
      const std::optional<size_t> rule = rule_globs.LastMatch(choice.fqn);
      if (rule.has_value()) placements = rules[*rule].placements;
      absl::StatusOr<std::vector<Box>> boxes =
          LocalBoxes(tensor->shape, mesh, placements, coordinate);
      if (!boxes.ok()) {
        unfit_.Add(absl::StrCat(choice.fqn, ": ", boxes.status().message()),
                   "rank_parts.placements");
        continue;
      }
      DCP_RETURN_IF_ERROR(CheckNumber(parts_.parts.size() + boxes->size()));
      for (Box& box : *boxes) {
        Append({.name = choice.fqn,
                .entry = choice.entry,
                .dtype = choice.dtype,
                .box = std::move(box)},
               "rank_parts");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StreamParts> Take() {
    if (!unfit_.empty()) {
      return BlameField(
          absl::InvalidArgumentError(absl::StrCat(
              checkpoint_.path(), ": ", unfit_.ToText(),
              missing_.empty() ? "" : "; and it lacks ", missing_.ToText())),
          unfit_.first_field());
    }
    if (!missing_.empty()) {
      return WithReason(absl::NotFoundError(absl::StrCat(
                            checkpoint_.path(), " lacks ", missing_.ToText())),
                        ErrorReason::TENSOR_NOT_FOUND,
                        {{"field", missing_.first_field()}});
    }
    return std::move(parts_);
  }

 private:
  absl::Status CheckStop() const {
    if (!stop_.stop_requested()) return absl::OkStatus();
    return absl::CancelledError("nobody waits for the parts any more");
  }

  static absl::Status CheckNumber(size_t number) {
    if (number <= kMaxParts) return absl::OkStatus();
    return RequestTooLarge(
        "parts", kMaxParts,
        absl::StrCat("the request has more than ", kMaxParts,
                     " parts: ask for them in several streams"));
  }

  void AddPart(const v1::ReadTensorsRequest::Part& wanted,
               const std::string& field) {
    const std::optional<uint32_t> entry = checkpoint_.Find(wanted.name());
    if (!entry.has_value()) return missing_.Add(wanted.name(), field);
    const TensorEntry* tensor = checkpoint_.entries()[*entry].tensor();
    if (tensor == nullptr) {
      return unfit_.Add(absl::StrCat(wanted.name(), " is not a tensor"), field);
    }
    StreamPart part{.name = wanted.name(),
                    .entry = *entry,
                    .dtype = tensor->dtype,
                    .box = WholeBox(tensor->shape)};
    const std::string problem = Fit(wanted, *tensor, field, part);
    if (!problem.empty()) {
      return unfit_.Add(absl::StrCat(wanted.name(), " ", problem), field);
    }
    Append(std::move(part), field);
  }

  // Describes why `wanted` does not fit the tensor; empty if it does. Sets the
  // dtype and box of `part`.
  static std::string Fit(const v1::ReadTensorsRequest::Part& wanted,
                         const TensorEntry& tensor, const std::string& field,
                         StreamPart& part) {
    const auto& shape = wanted.expected_shape();
    if (!shape.empty() &&
        !std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                    tensor.shape.end())) {
      return absl::StrCat("is stored as ", ShapeToString(tensor.shape),
                          ", but requested as ", ShapeToString(shape));
    }
    if (!wanted.dtype().empty()) {
      const absl::StatusOr<DType> dtype = ParseDType(wanted.dtype());
      if (!dtype.ok()) return std::string(dtype.status().message());
      std::string problem = WhyNotCast(tensor, *dtype);
      if (!problem.empty()) return problem;
      part.dtype = *dtype;
    }
    if (!wanted.has_box()) return "";
    absl::StatusOr<Box> box =
        BoxFromProto(wanted.box(), absl::StrCat(field, ".box"));
    if (!box.ok()) return std::string(box.status().message());
    if (box->sizes.size() != tensor.shape.size() ||
        !Contains(WholeBox(tensor.shape), *box)) {
      return absl::StrCat("has shape ", ShapeToString(tensor.shape), ": ",
                          ToString(*box), " is not inside it");
    }
    part.box = *std::move(box);
    return "";
  }

  void Append(StreamPart part, absl::string_view field) {
    const std::optional<uint64_t> num_bytes = CheckedMul(
        static_cast<uint64_t>(Volume(part.box.sizes)), ElementSize(part.dtype));
    const std::optional<uint64_t> end =
        num_bytes.has_value() ? CheckedAdd(parts_.num_bytes, *num_bytes)
                              : std::nullopt;
    if (!end.has_value()) {
      return unfit_.Add(absl::StrCat(part.name, " makes a stream of more than ",
                                     UINT64_MAX, " bytes"),
                        field);
    }
    part.begin = parts_.num_bytes;
    part.num_bytes = *num_bytes;
    parts_.num_bytes = *end;
    parts_.parts.push_back(std::move(part));
  }

  const Checkpoint& checkpoint_;
  const std::stop_token stop_;
  StreamParts parts_;
  Problems missing_;
  Problems unfit_;
};

}  // namespace

size_t StreamParts::PartAt(uint64_t offset) const {
  // If several parts have the same begin, only the last has bytes.
  const auto next =
      std::upper_bound(parts.begin(), parts.end(), offset,
                       [](uint64_t value, const StreamPart& part) {
                         return value < part.begin;
                       });
  DCP_CHECK(next != parts.begin() && offset < num_bytes, offset);
  return static_cast<size_t>(next - parts.begin()) - 1;
}

absl::StatusOr<StreamParts> ResolveParts(const Checkpoint& checkpoint,
                                         const v1::ReadTensorsRequest& request,
                                         std::stop_token stop) {
  DCP_RETURN_IF_ERROR(checkpoint.CheckIndex());
  Resolver resolver(checkpoint, std::move(stop));
  switch (request.wanted_case()) {
    case v1::ReadTensorsRequest::kParts:
      DCP_RETURN_IF_ERROR(resolver.AddParts(request.parts()));
      break;
    case v1::ReadTensorsRequest::kRankParts:
      DCP_RETURN_IF_ERROR(resolver.AddRankParts(request.rank_parts()));
      break;
    case v1::ReadTensorsRequest::WANTED_NOT_SET:
      return BlameField(absl::InvalidArgumentError(
                            "the request must set parts or rank_parts"),
                        "wanted");
  }
  return resolver.Take();
}

PartWindow WindowAt(absl::Span<const int64_t> shape, const StreamPart& part,
                    uint64_t offset) {
  DCP_CHECK(offset < part.num_bytes, part.name, " ", offset);
  const Box& box = part.box;
  const size_t num_dims = box.sizes.size();
  if (num_dims == 0) return {.box = box, .num_bytes = part.num_bytes};
  size_t dim = 0;
  uint64_t row_bytes = part.num_bytes;  // bytes of one index in `dim`
  for (; dim < num_dims; ++dim) {
    row_bytes /= static_cast<uint64_t>(box.sizes[dim]);
    if (row_bytes <= kWindowBytes) break;
  }
  // One index in the last dimension is one element.
  DCP_CHECK(dim < num_dims);
  const auto size = static_cast<uint64_t>(box.sizes[dim]);
  const auto low = static_cast<uint64_t>(box.offsets[dim]);
  // Cuts a row of the tensor into as few windows as possible, all equally long.
  const auto extent = static_cast<uint64_t>(shape[dim]);
  const uint64_t most = kWindowBytes / row_bytes;
  const uint64_t num_steps = (extent + most - 1) / most;
  const uint64_t step = (extent + num_steps - 1) / num_steps;

  const uint64_t outer = offset / (size * row_bytes);
  const uint64_t index = low + offset % (size * row_bytes) / row_bytes;
  const uint64_t first = std::max(low, index / step * step);
  const uint64_t last = std::min(low + size, (index / step + 1) * step);
  PartWindow window{.box = box,
                    .begin = (outer * size + first - low) * row_bytes,
                    .num_bytes = (last - first) * row_bytes};
  window.box.offsets[dim] = static_cast<int64_t>(first);
  window.box.sizes[dim] = static_cast<int64_t>(last - first);
  uint64_t rest = outer;
  for (size_t d = dim; d-- > 0;) {
    const auto length = static_cast<uint64_t>(box.sizes[d]);
    window.box.offsets[d] += static_cast<int64_t>(rest % length);
    window.box.sizes[d] = 1;
    rest /= length;
  }
  return window;
}

}  // namespace dcp::server
