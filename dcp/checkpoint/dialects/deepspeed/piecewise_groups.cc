// SPDX-License-Identifier: Apache-2.0
// Computes each parameter's pieces on every rank, for stage 3.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/piecewise_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_state.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// All sub-groups: older writers let a piece cross from one to the next.
class PiecewiseGroups {
 public:
  explicit PiecewiseGroups(const DeepSpeedState& state) : state_(state) {}

  absl::Status AddTo(StateCollector& collector) {
    for (const DeepSpeedPickle& pickle : state_.optims) {
      DCP_RETURN_IF_ERROR(Annotate(ReadRank(pickle), pickle.name));
    }
    const int64_t num_ranks = static_cast<int64_t>(ranks_.size());
    int64_t at = 0;
    for (size_t g = 0; g < state_.groups.size(); ++g) {
      for (const DeepSpeedParameter& parameter : state_.groups[g]) {
        const int64_t piece = (parameter.numel + num_ranks - 1) / num_ranks;
        DCP_RETURN_IF_ERROR(Annotate(
            AddParameter(parameter, at, piece, collector), parameter.name));
        for (size_t r = 0; r < ranks_.size(); ++r) {
          DCP_RETURN_IF_ERROR(
              AddCommonStates(state_.optims[r], static_cast<int64_t>(r),
                              states_[r][g], parameter, collector));
        }
        at += piece;
      }
    }
    if (at != ranks_[0][kMasterKey].size()) {
      return absl::DataLossError(
          absl::StrCat("the parameters in param_shapes have ", at,
                       " elements on each rank, but fp32_flat_groups have ",
                       ranks_[0][kMasterKey].size()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadRank(const DeepSpeedPickle& pickle) {
    DCP_ASSIGN_OR_RETURN(const Value flat,
                         GetKey(pickle.root, "fp32_flat_groups"));
    DCP_ASSIGN_OR_RETURN(const Value inner,
                         GetKey(pickle.root, "optimizer_state_dict"));
    DCP_ASSIGN_OR_RETURN(const std::vector<Value> states,
                         ParseGroupStates(inner, state_.groups.size()));
    ZeroVectors& vectors = ranks_.emplace_back();
    if (!flat.is(Kind::kList)) {
      return absl::DataLossError("fp32_flat_groups is not a list");
    }
    for (const Value& group : flat.items()) {
      DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, group));
      DCP_RETURN_IF_ERROR(vectors[kMasterKey].Append(std::move(tensor)));
    }
    for (const Value& state : states) {
      DCP_RETURN_IF_ERROR(AppendStates(pickle, state, vectors));
    }
    states_.push_back(states);
    return absl::OkStatus();
  }

  absl::Status AddParameter(const DeepSpeedParameter& parameter, int64_t at,
                            int64_t piece, StateCollector& collector) const {
    for (size_t d = 0; d < ranks_.size(); ++d) {
      const int64_t rank = static_cast<int64_t>(d);
      const int64_t begin = std::min(rank * piece, parameter.numel);
      const ZeroVector::Range range = {
          .begin = at,
          .count = std::min(piece, parameter.numel - begin),
          .parameter_begin = begin};
      for (const auto& [key, vector] : ranks_[d]) {
        DCP_RETURN_IF_ERROR(vector.AddTo(collector, ZeroPath(parameter, key),
                                         rank, range, parameter.shape));
      }
    }
    return absl::OkStatus();
  }

  const DeepSpeedState& state_;
  std::vector<ZeroVectors> ranks_;
  std::vector<std::vector<Value>> states_;  // by rank and sub-group
};

}  // namespace

absl::Status AddPiecewiseGroups(const DeepSpeedState& state,
                                StateCollector& collector) {
  return PiecewiseGroups(state).AddTo(collector);
}

}  // namespace dcp
