// SPDX-License-Identifier: Apache-2.0
// Builds the styles and prints them.
//
// Tested by tests/fsdp/parallel/tensor/styles_test.cc.
#include "fsdp/parallel/tensor/styles.h"

#include "c10/util/Exception.h"

namespace fsdp {
namespace {

using Kind = ParallelStyle::Kind;

void CheckLengths(const char* style, const char* which,
                  const ParallelStyle::Layouts& given,
                  const ParallelStyle::Layouts& desired) {
  TORCH_CHECK_VALUE(given.size() == desired.size(), style, ": ", which,
                    "_layouts has ", given.size(), " elements and desired_",
                    which, "_layouts has ", desired.size(),
                    "; they must have one for each tensor");
}

ParallelStyle Linear(Kind kind, const ParallelStyleOptions& options) {
  return {.kind = kind,
          .input_layouts = options.input_layouts,
          .output_layouts = options.output_layouts,
          .use_local_output = options.use_local_output};
}

}  // namespace

std::string to_string(const ParallelStyle& style) {
  switch (style.kind) {
    case Kind::kColwise:
      return "ColwiseParallel";
    case Kind::kRowwise:
      return "RowwiseParallel";
    case Kind::kSequence:
      return "SequenceParallel";
    case Kind::kReplicate:
      return "ReplicateParallel";
    case Kind::kPrepareInput:
      return "PrepareModuleInput";
    case Kind::kPrepareOutput:
      return "PrepareModuleOutput";
    case Kind::kPrepareInputOutput:
      return "PrepareModuleInputOutput";
  }
  return "";
}

ParallelStyle ColwiseParallel(const ParallelStyleOptions& options) {
  return Linear(Kind::kColwise, options);
}

ParallelStyle RowwiseParallel(const ParallelStyleOptions& options) {
  ParallelStyle style = Linear(Kind::kRowwise, options);
  if (!style.output_layouts.has_value()) style.output_layouts = Replicate();
  return style;
}

ParallelStyle SequenceParallel(const SequenceParallelOptions& options) {
  return {.kind = Kind::kSequence,
          .sequence_dim = options.sequence_dim,
          .use_local_output = options.use_local_output};
}

ParallelStyle ReplicateParallel() { return {.kind = Kind::kReplicate}; }

ParallelStyle PrepareModuleInput(const PrepareModuleInputOptions& options) {
  CheckLengths("PrepareModuleInput", "input", options.input_layouts,
               options.desired_input_layouts);
  return {.kind = Kind::kPrepareInput,
          .given_inputs = options.input_layouts,
          .desired_inputs = options.desired_input_layouts};
}

ParallelStyle PrepareModuleOutput(const PrepareModuleOutputOptions& options) {
  CheckLengths("PrepareModuleOutput", "output", options.output_layouts,
               options.desired_output_layouts);
  return {.kind = Kind::kPrepareOutput,
          .use_local_output = options.use_local_output,
          .given_outputs = options.output_layouts,
          .desired_outputs = options.desired_output_layouts};
}

ParallelStyle PrepareModuleInputOutput(
    const PrepareModuleInputOutputOptions& options) {
  CheckLengths("PrepareModuleInputOutput", "input", options.input_layouts,
               options.desired_input_layouts);
  CheckLengths("PrepareModuleInputOutput", "output", options.output_layouts,
               options.desired_output_layouts);
  return {.kind = Kind::kPrepareInputOutput,
          .use_local_output = options.use_local_output,
          .given_inputs = options.input_layouts,
          .desired_inputs = options.desired_input_layouts,
          .given_outputs = options.output_layouts,
          .desired_outputs = options.desired_output_layouts};
}

}  // namespace fsdp
