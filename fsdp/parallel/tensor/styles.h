// SPDX-License-Identifier: Apache-2.0
// Styles: how parallelize_module cuts one module, and how it moves the input
// and output. Names and meaning are PyTorch's
// (torch/distributed/tensor/parallel/style.py); fsdp/parallel/README.md lists
// the differences. Plain values; any thread.
#ifndef FSDP_PARALLEL_TENSOR_STYLES_H_
#define FSDP_PARALLEL_TENSOR_STYLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/mesh/placement.h"

namespace fsdp {

class ParallelStyle {
 public:
  enum class Kind : uint8_t {
    kColwise,
    kRowwise,
    kSequence,
    kReplicate,
    kPrepareInput,
    kPrepareOutput,
    kPrepareInputOutput
  };
  // One for each tensor among the arguments, or results, of the module's call,
  // in their order; nullopt leaves that one alone.
  using Layouts = std::vector<std::optional<Placement>>;

  Kind kind = Kind::kReplicate;
  std::optional<Placement> input_layouts = {};
  std::optional<Placement> output_layouts = {};
  int64_t sequence_dim = 1;
  bool use_local_output = false;
  // The module type in a plan's text: true is an Embedding, false a Linear. A
  // module of another type is refused, because dcp-convert, which knows only
  // names, would cut the weight along another dimension. Unset: either.
  std::optional<bool> embedding = {};
  // For the kinds that prepare inputs and outputs.
  Layouts given_inputs = {};
  Layouts desired_inputs = {};
  Layouts given_outputs = {};
  Layouts desired_outputs = {};

  friend bool operator==(const ParallelStyle&, const ParallelStyle&) = default;
};

// "ColwiseParallel", for messages.
std::string to_string(const ParallelStyle& style);

struct ParallelStyleOptions {
  // A plain input is this part of the activation; unset: it is the whole. An
  // activation that comes in parts is moved from wherever it lies.
  std::optional<Placement> input_layouts = {};
  // Where the output is moved. Unset: the style's own.
  std::optional<Placement> output_layouts = {};
  // Whether the output is this rank's part as an ordinary tensor, for a model
  // that is written for parts.
  bool use_local_output = false;
};

// Cuts a Linear's weight and bias by rows, or an Embedding's weight by columns:
// the output is Shard(-1) unless output_layouts says otherwise.
ParallelStyle ColwiseParallel(const ParallelStyleOptions& options = {});

// Cuts a Linear's weight by columns, or an Embedding's weight by rows; the
// output is summed: Replicate unless output_layouts says otherwise. A Linear's
// bias is replicated.
ParallelStyle RowwiseParallel(const ParallelStyleOptions& options = {});

struct SequenceParallelOptions {
  int64_t sequence_dim = 1;
  bool use_local_output = false;
};
// A module that computes along other dimensions than the sequence (a norm, a
// dropout) works on this rank's part of the sequence. The parameters are
// replicated and their gradients summed, once in each backward, together with
// the other parameter gradients in the group.
ParallelStyle SequenceParallel(const SequenceParallelOptions& options = {});

// The module's parameters are replicated on the mesh, so that all of a model's
// parameters are DTensors on it.
ParallelStyle ReplicateParallel();

// Inputs that are moved before the module's forward, and outputs after it.
// `given` says for plain tensors which activation part they are; nullopt: they
// are the whole. They act where a module is called through fsdp::forward or
// fsdp::Wrapped, which see inputs and outputs; a module that is called in
// another way takes activations as they come, which gives the same numbers.
struct PrepareModuleInputOptions {
  ParallelStyle::Layouts input_layouts = {};
  ParallelStyle::Layouts desired_input_layouts = {};
};
ParallelStyle PrepareModuleInput(const PrepareModuleInputOptions& options);
struct PrepareModuleOutputOptions {
  ParallelStyle::Layouts output_layouts = {};
  ParallelStyle::Layouts desired_output_layouts = {};
  bool use_local_output = false;
};
ParallelStyle PrepareModuleOutput(const PrepareModuleOutputOptions& options);
struct PrepareModuleInputOutputOptions {
  ParallelStyle::Layouts input_layouts = {};
  ParallelStyle::Layouts desired_input_layouts = {};
  ParallelStyle::Layouts output_layouts = {};
  ParallelStyle::Layouts desired_output_layouts = {};
  bool use_local_output = false;
};
ParallelStyle PrepareModuleInputOutput(
    const PrepareModuleInputOutputOptions& options);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_TENSOR_STYLES_H_
