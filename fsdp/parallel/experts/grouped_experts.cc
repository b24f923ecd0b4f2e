// SPDX-License-Identifier: Apache-2.0
// How rows reach experts on other ranks and come back:
//   1. The ranks in `ep` tell each other how many rows they have for each
//      expert: one all-to-all with counts, which the host reads.
//   2. One all-to-all brings every row to the expert's rank. The rows then lie
//      by rank; a permutation puts them by expert.
//   3. The experts compute them. If `tp` cuts the experts, each rank has a part
//      of every expert's hidden dimension, so that the output is a part of a
//      sum, and so is the input's gradient.
//   4. The inverse permutation and an all-to-all bring the results back.
// Backward does the same the other way round, without counts.
#include "fsdp/parallel/experts/grouped_experts.h"

#include <vector>

#include "ATen/ops/_grouped_mm.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/silu.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/parallel/experts/expert_order.h"
#include "fsdp/parallel/experts/row_exchange.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/moves.h"
#include "torch/nn/init.h"

namespace fsdp {
namespace {

// A grouped product's backward reads columns of 16 bytes.
constexpr int64_t kRowAlignment = 8;

// Waits for the device, unless `counts` is on the CPU.
std::vector<int64_t> OnHost(const at::Tensor& counts) {
  const at::Tensor host = counts.to(at::kCPU).contiguous();
  const int64_t* begin = host.const_data_ptr<int64_t>();
  return {begin, begin + host.numel()};
}

}  // namespace

GroupedExpertsImpl::GroupedExpertsImpl(int64_t dim, int64_t hidden_dim,
                                       int64_t num_experts)
    : num_experts_(num_experts), hidden_dim_(hidden_dim) {
  const auto add = [&](const char* name, int64_t rows, int64_t columns) {
    return register_parameter(
        name, torch::nn::init::normal_(
                  torch::empty({num_experts, rows, columns}), 0, 0.02));
  };
  w1 = add("w1", hidden_dim, dim);
  w2 = add("w2", dim, hidden_dim);
  w3 = add("w3", hidden_dim, dim);
}

at::Tensor GroupedExpertsImpl::forward(const at::Tensor& x,
                                       const at::Tensor& counts) {
  TORCH_CHECK_VALUE(counts.dim() == 1 && counts.size(0) == num_experts_,
                    "num_tokens_per_expert has shape ", counts.sizes(),
                    ", but there are ", num_experts_, " experts");
  const auto run = [&](const at::Tensor& rows) {
    return groups_.ep == nullptr ? Compute(rows, counts, counts)
                                 : DispatchComputeCombine(rows, counts);
  };
  if (groups_.tp == nullptr) return run(x);
  const spmd::Layout same = spmd::Layout::Same();
  const spmd::Sizes sizes = x.sizes().vec();
  return spmd::Move(run(spmd::MoveToVarying(x, same, sizes, groups_.tp)),
                    spmd::Layout::Partial(), same, sizes, groups_.tp);
}

at::Tensor GroupedExpertsImpl::DispatchComputeCombine(
    const at::Tensor& x, const at::Tensor& counts) {
  const int64_t ranks = groups_.ep->getSize();
  const at::Tensor mine = counts.view({ranks, -1}).contiguous();
  const at::Tensor theirs = AllToAll(mine, groups_.ep);
  // One wait for the device, for everything that the host needs.
  const at::Tensor host = at::cat({mine.sum(1), theirs.flatten()}).to(at::kCPU);
  const at::Tensor theirs_on_host =
      host.narrow(0, ranks, theirs.numel()).view(theirs.sizes());
  const std::vector<int64_t> sent = OnHost(host.narrow(0, 0, ranks));
  const std::vector<int64_t> received = OnHost(theirs_on_host.sum(1));

  const at::Tensor rows = ExchangeRows(x, sent, received, groups_.ep);
  const at::Tensor order = ByExpert(theirs, rows.size(0));
  const at::Tensor y = Compute(rows.index_select(0, order), theirs.sum(0),
                               theirs_on_host.sum(0));
  return ExchangeRows(y.index_select(0, Inverse(order)), received, sent,
                      groups_.ep);
}

at::Tensor GroupedExpertsImpl::Compute(const at::Tensor& rows,
                                       const at::Tensor& counts,
                                       const at::Tensor& counts_on_host) {
  // Views of weights come before the first product.
  const ForwardScope scope;
  return rows.is_cuda() && w1.scalar_type() == at::kBFloat16
             ? RunExpertsGrouped(w1, w2, w3, rows, counts)
             : RunExpertsInALoop(w1, w2, w3, rows, counts_on_host);
}

at::Tensor RunExpertsInALoop(const at::Tensor& w1, const at::Tensor& w2,
                             const at::Tensor& w3, const at::Tensor& rows,
                             const at::Tensor& counts) {
  const std::vector<at::Tensor> by_expert =
      rows.split_with_sizes(OnHost(counts));
  std::vector<at::Tensor> outputs;
  // An expert without rows runs too, so that the weights have gradients on
  // every rank.
  for (size_t e = 0; e < by_expert.size(); ++e) {
    const int64_t expert = static_cast<int64_t>(e);
    const at::Tensor& x = by_expert[e];
    const at::Tensor gate = at::silu(x.mm(w1[expert].t()));
    outputs.push_back((gate * x.mm(w3[expert].t())).mm(w2[expert].t()));
  }
  return at::cat(outputs);
}

at::Tensor RunExpertsGrouped(const at::Tensor& w1, const at::Tensor& w2,
                             const at::Tensor& w3, const at::Tensor& rows,
                             const at::Tensor& counts) {
  const AlignedRows aligned = Align(counts, rows.size(0), kRowAlignment);
  // Padding is zero, so it adds nothing to weight gradients.
  const at::Tensor x = rows.new_zeros({aligned.num_places, rows.size(1)})
                           .index_copy(0, aligned.places, rows);
  const auto product = [&](const at::Tensor& input, const at::Tensor& weight) {
    return at::_grouped_mm(input, weight.transpose(1, 2), aligned.ends);
  };
  const at::Tensor hidden = at::silu(product(x, w1)) * product(x, w3);
  return product(hidden, w2).index_select(0, aligned.places);
}

}  // namespace fsdp
