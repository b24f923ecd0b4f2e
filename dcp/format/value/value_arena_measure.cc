// SPDX-License-Identifier: Apache-2.0
// ValueArena::Measure: counts the values of a graph with shared parts.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_arena_impl.h"

namespace dcp {

using Kind = Value::Kind;

absl::Span<const Value> ValueArena::Impl::Parts(const Value& container,
                                                int stage) {
  switch (container.kind_) {
    case Kind::kTuple:
      if (stage == 0) return {container.values_, container.length_};
      return {};
    case Kind::kPersistent:
      if (stage == 0) return {container.values_, 1};
      return {};
    case Kind::kList:
    case Kind::kDict:
      if (stage == 0) return container.sequence_->values();
      return {};
    case Kind::kCall: {
      const Value::CallNode& call = *container.call_;
      if (stage == 0) return {&call.args, 1};
      if (stage == 3) return {&call.state, 1};
      if (call.content == nullptr) return {};
      return stage == 1 ? call.content->items.values()
                        : call.content->elements.values();
    }
    default:
      return {};
  }
}

namespace {

// A container on the path from the root, and the state of walking its parts.
struct Step {
  Value value;
  absl::Span<const Value> rest;  // in this stage
  int stage = 0;
  uint32_t depth = 0;
  uint64_t size = 1;
};

uint64_t LeafSize(const Value& value) {
  switch (value.kind()) {
    case Kind::kStr:
    case Kind::kBytes:
    case Kind::kBigInt:
      return 1 + value.text().size() / 16;
    default:
      return 1;
  }
}

absl::Status TooDeep() {
  return absl::DataLossError(
      absl::StrCat("values are nested deeper than ", kMaxPickleDepth));
}

}  // namespace

absl::StatusOr<uint64_t> ValueArena::Measure(Value root, uint64_t max_values) {
  using Mark = Impl::Mark;
  DCP_CHECK(max_values < (uint64_t{1} << 31), "max_values ", max_values);
  if (root.identity() == nullptr) return LeafSize(root);
  std::vector<Step> steps = {{.value = root, .rest = Impl::Parts(root, 0)}};
  Impl::ContainerMark(root.identity()) = {.depth = Mark::kOpen, .size = 0};
  while (true) {
    Step& step = steps.back();
    while (step.rest.empty() && ++step.stage < Impl::kNumStages) {
      step.rest = Impl::Parts(step.value, step.stage);
    }
    uint64_t size;
    uint32_t depth = 0;
    if (step.rest.empty()) {
      size = step.size;
      depth = step.depth + 1;
      Impl::ContainerMark(step.value.identity()) = {
          .depth = depth, .size = static_cast<uint32_t>(size)};
      steps.pop_back();
      if (steps.empty()) return size;
    } else {
      const Value& slot = step.rest.front();
      const Value part = slot;
      step.rest.remove_prefix(1);
      if (part.identity() == nullptr) {
        size = LeafSize(part);
      } else {
        Mark& mark = Impl::ContainerMark(part.identity());
        if (mark.depth == Mark::kOpen) {
          if (!part.is(Kind::kCall) || steps[mark.size].stage == 0) {
            return absl::DataLossError(
                "a container contains itself, which is not supported");
          }
          // The slot is in the arena, so it may be written.
          const_cast<Value&>(slot) = Enclosing(part);
          size = 1;
        } else if (mark.size == 0) {
          if (steps.size() >= kMaxPickleDepth) return TooDeep();
          mark = {.depth = Mark::kOpen,
                  .size = static_cast<uint32_t>(steps.size())};
          steps.push_back({.value = part, .rest = Impl::Parts(part, 0)});
          continue;
        } else {
          size = mark.size;
          depth = mark.depth;
        }
      }
    }
    Step& parent = steps.back();
    parent.size += size;
    parent.depth = std::max(parent.depth, depth);
    // A part that was measured before is not walked again, so the depth is
    // checked here.
    if (steps.size() + depth > kMaxPickleDepth) return TooDeep();
    if (parent.size > max_values) {
      return absl::DataLossError(absl::StrCat(
          "shared parts expand to more than ", max_values, " values"));
    }
  }
}

}  // namespace dcp
