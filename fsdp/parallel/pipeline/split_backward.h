// SPDX-License-Identifier: Apache-2.0
// SplitBackward: one microbatch's backward in two parts. The first part
// computes the gradients for the stage's inputs, which the previous stage waits
// for; the second one, at any later time, the parameters'. The idea is that of
// PyTorch's stage_backward_input and stage_backward_weight
// (torch/distributed/pipelining/ _backward.py, 2.15). For the thread that
// trains.
//
// [Note: the two parts]
// The nodes in the autograd graph from which the inputs can be reached are the
// path. The first part runs the path alone, as torch::autograd::grad does, so
// the path's nodes leave out the work for parameters. A node on the path with
// an edge that leaves it, as a product of an activation and a weight has, is a
// junction: the gradient that comes to it is kept. The second part is one
// backward from copies of the junctions. A copy runs the junction
// with that gradient and has only the edges that leave the path, so the
// junction leaves out the work for the inputs.
//
//      outputs                   outputs            gradient of J
//         |                         |                     |
//         J --- weight    =         J           +      copy of J --- weight
//         |                         |
//       input                     input
//
// Every product is computed once, as in one backward. The cost is memory: what
// junctions saved in forward, and the gradients that came to them, stay until
// the second part; all other nodes on the path are freed after the first.
//
// There are two exceptions. A torch::autograd::Function that is a junction runs
// as a whole in both parts, unless it asks needs_input_grad. A checkpoint
// recomputes its function in a backward of its own, so a graph with one is not
// split: the first part computes everything.
#ifndef FSDP_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_
#define FSDP_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/csrc/autograd/edge.h"
#include "torch/csrc/autograd/function.h"

namespace fsdp {

class SplitBackward {
 public:
  // `roots` have the gradients `gradients`, one each. `inputs` are leaves;
  // those that do not require grad get no gradient. Without any that does, the
  // first part does nothing and the second one everything.
  SplitBackward(std::vector<at::Tensor> roots,
                std::vector<at::Tensor> gradients,
                const std::vector<at::Tensor>& inputs);

  // Whether the first part computes the parameters' gradients too.
  bool is_whole() const { return is_whole_; }

  // The first part, once: the gradient of each input that requires grad,
  // undefined for one that the roots do not depend on.
  std::vector<at::Tensor> ComputeInputGradients();
  // The second part, once, after the first: adds to the gradients of all other
  // leaves, and runs their hooks.
  void AccumulateWeightGradients();

 private:
  using Node = torch::autograd::Node;
  // A node on the path with edges that leave it.
  struct Junction {
    std::shared_ptr<Node> node;
    torch::autograd::edge_list leaving;  // invalid where an edge does not
    // By the node's inputs; set in the first part.
    std::shared_ptr<std::vector<at::Tensor>> gradients;
  };

  void FindPath();
  void KeepJunction(const std::shared_ptr<Node>& node);
  void RunPath(std::vector<at::Tensor>* input_gradients);

  std::vector<at::Tensor> roots_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> inputs_;  // those that require grad
  bool is_whole_ = false;

  std::vector<std::shared_ptr<Node>> path_;  // without junctions
  std::vector<Junction> junctions_;
  // Nodes outside the path: the roots there, and those without further edges.
  torch::autograd::edge_list other_roots_;
  std::vector<at::Tensor> other_gradients_;
  torch::autograd::edge_list ends_;
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_
