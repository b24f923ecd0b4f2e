// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/tensor/parallelize_module.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "c10/util/Logging.h"
#include "fsdp/engine/boundary_hooks.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/parameters.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/handler.h"
#include "fsdp/parallel/spmd/styled_param.h"
#include "fsdp/parallel/tensor/plan_match.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using Kind = ParallelStyle::Kind;
using Slots =
    std::unordered_map<const c10::TensorImpl*, std::vector<FsdpParam::Slot>>;

// Every registry entry below `root` by the tensor that it holds.
Slots CollectSlots(Module& root) {
  Slots slots;
  for (const auto& module : root.modules()) {
    for (const auto& item : ParameterRegistry(*module)) {
      if (!item.value().defined()) continue;
      slots[item.value().unsafeGetTensorImpl()].push_back(
          {module.get(), item.key()});
    }
  }
  return slots;
}

// Collects a plan's requests, and checks them.
class Planner {
 public:
  Planner(Module& root, const DeviceMesh& mesh,
          const ParallelizeOptions& options)
      : axis_(spmd::InternAxis(mesh)),
        options_(options),
        slots_(CollectSlots(root)) {}

  void Add(const MatchedModule& match, const ParallelStyle& style) {
    if (style.kind == Kind::kPrepareInput ||
        style.kind == Kind::kPrepareOutput ||
        style.kind == Kind::kPrepareInputOutput) {
      boundaries_.emplace_back(match.module->shared_from_this(), style);
      return;
    }
    const bool is_linear = match.module->as<torch::nn::LinearImpl>() != nullptr;
    auto* embedding = match.module->as<torch::nn::EmbeddingImpl>();
    const bool cuts =
        style.kind == Kind::kColwise || style.kind == Kind::kRowwise;
    TORCH_CHECK_NOT_IMPLEMENTED(
        !cuts || is_linear || embedding != nullptr, "parallelize_module: '",
        match.name, "' is a ", type_name(*match.module), ", but ",
        to_string(style), " is for torch::nn::Linear and torch::nn::Embedding");
    TORCH_CHECK_VALUE(
        !cuts || style.embedding.value_or(embedding != nullptr) ==
                     (embedding != nullptr),
        "parallelize_module: '", match.name, "' is ",
        embedding != nullptr ? "an Embedding" : "a Linear",
        ", but the plan says that it is ",
        embedding != nullptr
            ? "not one; leave `embedding: false` out"
            : "an Embedding, whose weight would be cut along the other "
              "dimension; write colwise or rowwise");
    TORCH_CHECK_NOT_IMPLEMENTED(
        embedding == nullptr || !cuts ||
            (!embedding->options.max_norm().has_value() &&
             !embedding->options.sparse()),
        "parallelize_module: the Embedding '", match.name,
        "' has max_norm or sparse gradients, which cannot be made parallel");
    for (const auto& item : ParameterRegistry(*match.module)) {
      if (!item.value().defined()) continue;
      AddParameter(match, item.key(), item.value(), style,
                   embedding != nullptr);
    }
    if (embedding != nullptr && style.kind == Kind::kRowwise) {
      AddLookup(match.name, *embedding);
    }
    SetBias(*match.module);
  }

  void PrepareBoundaries() const {
    for (const auto& [module, style] : boundaries_) {
      BoundaryHooks hooks;
      hooks.input = Mover(style.given_inputs, style.desired_inputs,
                          /*use_local=*/false);
      hooks.output = Mover(style.given_outputs, style.desired_outputs,
                           style.use_local_output);
      SetBoundaryHooks(module, std::move(hooks));
    }
  }

  // The parameters have it from now on: see ParallelParam::padding_idx.
  void TakePaddingFromModules() const {
    for (torch::nn::EmbeddingImpl* embedding : lookups_) {
      embedding->options.padding_idx(std::nullopt);
    }
  }

  std::vector<ParallelRequest> Take() { return std::move(requests_); }

 private:
  // Moves the tensors at a module's boundary.
  std::function<at::Tensor(size_t, const at::Tensor&)> Mover(
      const ParallelStyle::Layouts& given,
      const ParallelStyle::Layouts& desired, bool use_local) const {
    if (desired.empty()) return {};
    return [given, desired, use_local, mesh = axis_->mesh](
               size_t index, const at::Tensor& tensor) {
      TORCH_CHECK_VALUE(index < desired.size(), "a module that prepares ",
                        desired.size(),
                        " tensors at its boundary was given more");
      if (!desired[index].has_value()) return tensor;
      at::Tensor activation = tensor;
      if (given[index].has_value() && layout_of(tensor).empty()) {
        activation = from_local(tensor, mesh, {*given[index]});
      }
      activation = redistribute(activation, mesh, *desired[index]);
      return use_local ? to_local(activation) : activation;
    };
  }

  static Placement ParameterPlacement(const ParallelStyle& style,
                                      const std::string& name,
                                      bool is_embedding) {
    switch (style.kind) {
      case Kind::kColwise:
        return Shard(is_embedding ? 1 : 0);
      case Kind::kRowwise:
        if (is_embedding) return Shard(0);
        if (name == "weight") return Shard(1);
        return Replicate();
      default:
        return Replicate();
    }
  }

  void AddParameter(const MatchedModule& match, const std::string& name,
                    const at::Tensor& leaf, const ParallelStyle& style,
                    bool is_embedding) {
    const std::string full_name =
        match.name.empty() ? name : absl::StrCat(match.name, ".", name);
    const Placement placement = ParameterPlacement(style, name, is_embedding);
    const auto [found, is_new] =
        params_.try_emplace(leaf.unsafeGetTensorImpl(), nullptr);
    if (is_new) {
      CheckMayBeParallel(leaf, full_name);
      TORCH_CHECK_VALUE(leaf.dim() > 0, "parallelize_module: '", full_name,
                        "' has no dimension; change it to a 1-D tensor with "
                        "numel equal to 1");
      auto param = std::make_shared<spmd::StyledParam>(
          DTensorSpec{.mesh = axis_->mesh,
                      .placements = {placement},
                      .shape = leaf.sizes().vec(),
                      .stride = leaf.strides().vec()},
          axis_, full_name);
      if (style.kind == Kind::kSequence) param->gradient_group = axis_->group;
      found->second = param.get();
      requests_.push_back(
          {.target = {.leaf = leaf,
                      .name = full_name,
                      .slots = slots_[leaf.unsafeGetTensorImpl()],
                      .parallel = std::move(param)},
           .src_data_rank = options_.src_data_rank});
    }
    spmd::StyledParam& param = *found->second;
    TORCH_CHECK_VALUE(
        param.spec.placements.front() == placement &&
            (param.gradient_group != nullptr) ==
                (style.kind == Kind::kSequence),
        "parallelize_module: '", full_name, "' is tied to '", param.name,
        "', but ", to_string(style), " makes it ", to_string(placement),
        " and the other style ", to_string(param.spec.placements.front()),
        ". Give both modules styles that cut the tensor in one way");
    spmd::OperatorStyle& use = is_embedding ? param.embedding : param.product;
    use.input = style.input_layouts;
    use.output = style.output_layouts;
    use.use_local_output = style.use_local_output;
    if (style.kind == Kind::kSequence) use.sequence_dim = style.sequence_dim;
  }

  void AddLookup(const std::string& name, torch::nn::EmbeddingImpl& embedding) {
    std::optional<int64_t>& padding =
        params_.at(embedding.weight.unsafeGetTensorImpl())->padding_idx;
    const bool is_first =
        std::none_of(lookups_.begin(), lookups_.end(), [&](const auto* other) {
          return other->weight.is_same(embedding.weight);
        });
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_first || padding == embedding.options.padding_idx(),
        "parallelize_module: the Embedding '", name,
        "' is tied to one with another padding_idx. Give both the same, or a "
        "ColwiseParallel style");
    padding = embedding.options.padding_idx();
    lookups_.push_back(&embedding);
  }

  // A separate operator adds the bias after the product.
  void SetBias(Module& module) {
    const at::Tensor* weight = ParameterRegistry(module).find("weight");
    const at::Tensor* bias = ParameterRegistry(module).find("bias");
    if (weight == nullptr || bias == nullptr || !weight->defined() ||
        !bias->defined()) {
      return;
    }
    params_.at(weight->unsafeGetTensorImpl())->bias =
        bias->unsafeGetTensorImpl();
  }

  const spmd::AxisPtr axis_;
  const ParallelizeOptions options_;
  Slots slots_;
  // By the tensor that the registry holds now, which is the member.
  std::unordered_map<const c10::TensorImpl*, spmd::StyledParam*> params_;
  std::vector<ParallelRequest> requests_;
  std::vector<std::pair<std::shared_ptr<Module>, ParallelStyle>> boundaries_;
  std::vector<torch::nn::EmbeddingImpl*> lookups_;  // in rows that are cut
};

}  // namespace

void parallelize_module(Module& module, const DeviceMesh& mesh,
                        const ParallelizePlan& plan,
                        const ParallelizeOptions& options) {
  if (plan.empty()) {
    LOG(WARNING) << "parallelize_module: the plan is empty; nothing is "
                    "made parallel";
    return;
  }
  Planner planner(module, mesh, options);
  for (const auto& [pattern, style] : plan) {
    const std::vector<MatchedModule> matches = MatchModules(module, pattern);
    if (matches.empty()) {
      LOG(WARNING) << "parallelize_module: no module below the "
                   << type_name(module) << " matches '" << pattern
                   << "'; the nearest name is '" << NearestName(module, pattern)
                   << "'";
    }
    for (const MatchedModule& match : matches) planner.Add(match, style);
  }
  planner.PrepareBoundaries();
  TakeOverAll(planner.Take());
  planner.TakePaddingFromModules();
  spmd::InstallHandler();
}

}  // namespace fsdp
