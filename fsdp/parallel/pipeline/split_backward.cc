// SPDX-License-Identifier: Apache-2.0
// Splits a backward: see [Note: the two parts].

#include "fsdp/parallel/pipeline/split_backward.h"

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "fsdp/module/activation_checkpoint.h"
#include "torch/csrc/api/include/torch/autograd.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Keeps the gradients that come to a node.
class Keeper : public torch::autograd::FunctionPreHook {
 public:
  explicit Keeper(std::shared_ptr<variable_list> kept)
      : kept_(std::move(kept)) {}
  variable_list operator()(const variable_list& gradients) override {
    *kept_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<variable_list> kept_;  // with the junction
};

// A junction's copy. The engine asks for the work that `leaving` needs.
class JunctionCopy : public Node {
 public:
  JunctionCopy(std::shared_ptr<Node> node, edge_list&& leaving)
      : Node(std::move(leaving)), node_(std::move(node)) {
    for (size_t i = 0; i < node_->num_inputs(); ++i) {
      input_metadata_.emplace_back(node_->input_metadata(i));
    }
  }
  void release_variables() override { node_->release_variables(); }

 protected:
  variable_list apply(variable_list&& gradients) override {
    return (*node_)(std::move(gradients));
  }

 private:
  std::shared_ptr<Node> node_;  // with the graph, which is freed with this
};

// Visits the nodes below some roots, each once, children before parents.
class GraphWalk {
 public:
  void Visit(const std::shared_ptr<Node>& root) {
    Push(root);
    while (!stack_.empty()) {
      auto& [node, next] = stack_.back();
      if (next < node->num_outputs()) {
        Push(node->next_edge(next++).function);
        continue;
      }
      nodes_.push_back(std::move(node));
      stack_.pop_back();
    }
  }
  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }

 private:
  void Push(const std::shared_ptr<Node>& node) {
    if (node != nullptr && seen_.emplace(node.get(), true).second) {
      stack_.emplace_back(node, 0);
    }
  }

  std::vector<std::pair<std::shared_ptr<Node>, uint32_t>> stack_;
  std::vector<std::shared_ptr<Node>> nodes_;
  std::unordered_map<const Node*, bool> seen_;
};

}  // namespace

SplitBackward::SplitBackward(std::vector<at::Tensor> roots,
                             std::vector<at::Tensor> gradients,
                             const std::vector<at::Tensor>& inputs)
    : roots_(std::move(roots)), gradients_(std::move(gradients)) {
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) inputs_.push_back(input);
  }
  if (!inputs_.empty() && !roots_.empty()) FindPath();
}

void SplitBackward::FindPath() {
  std::unordered_map<const Node*, bool> on_path;
  for (const at::Tensor& input : inputs_) {
    on_path[torch::autograd::impl::gradient_edge(input).function.get()] = true;
  }
  GraphWalk walk;
  for (const at::Tensor& root : roots_) {
    walk.Visit(torch::autograd::impl::gradient_edge(root).function);
  }
  for (const std::shared_ptr<Node>& node : walk.nodes()) {
    if (is_checkpoint(*node)) is_whole_ = true;
    bool leads = on_path[node.get()], leaves = false, ends = true;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      ends = false;
      (on_path[edge.function.get()] ? leads : leaves) = true;
    }
    on_path[node.get()] = leads;
    if (!leads) {
      if (ends) ends_.emplace_back(node, 0);
    } else if (!leaves) {
      path_.push_back(node);
    } else {
      Junction& junction = junctions_.emplace_back();
      junction.node = node;
      junction.gradients = std::make_shared<variable_list>();
      for (const Edge& edge : node->next_edges()) {
        const bool stays = edge.is_valid() && on_path[edge.function.get()];
        junction.leaving.push_back(stays ? Edge() : edge);
      }
    }
  }
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Edge edge = torch::autograd::impl::gradient_edge(roots_[i]);
    if (on_path[edge.function.get()]) continue;
    other_roots_.push_back(edge);
    other_gradients_.push_back(gradients_[i]);
  }
}

std::vector<at::Tensor> SplitBackward::ComputeInputGradients() {
  if (inputs_.empty() || roots_.empty()) {
    return std::vector<at::Tensor>(inputs_.size());
  }
  std::vector<at::Tensor> input_gradients;
  if (is_whole_) {
    torch::autograd::backward(roots_, gradients_);
    for (const at::Tensor& input : inputs_) {
      input_gradients.push_back(input.grad());
    }
  } else {
    for (const Junction& junction : junctions_) {
      junction.node->add_pre_hook(std::make_unique<Keeper>(junction.gradients));
    }
    input_gradients = torch::autograd::grad(
        roots_, inputs_, gradients_, /*retain_graph=*/true,
        /*create_graph=*/false, /*allow_unused=*/true);
    for (const Junction& junction : junctions_) {
      junction.node->pre_hooks().pop_back();
    }
  }
  for (const std::shared_ptr<Node>& node : path_) node->release_variables();
  path_.clear();
  roots_.clear();
  gradients_.clear();
  return input_gradients;
}

void SplitBackward::AccumulateWeightGradients() {
  if (is_whole_) return;
  if (!roots_.empty()) {
    torch::autograd::backward(roots_, gradients_);
    return;
  }
  edge_list roots = std::move(other_roots_);
  variable_list gradients = std::move(other_gradients_);
  for (Junction& junction : junctions_) {
    const auto copy = std::make_shared<JunctionCopy>(
        std::move(junction.node), std::move(junction.leaving));
    for (size_t i = 0; i < junction.gradients->size(); ++i) {
      at::Tensor& gradient = (*junction.gradients)[i];
      if (!gradient.defined()) continue;
      roots.emplace_back(copy, static_cast<uint32_t>(i));
      gradients.push_back(std::move(gradient));
    }
  }
  junctions_.clear();
  if (roots.empty()) return;
  Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                       /*create_graph=*/false,
                                       /*accumulate_grad=*/true, ends_);
}

}  // namespace fsdp
