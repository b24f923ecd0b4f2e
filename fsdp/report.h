// SPDX-License-Identifier: Apache-2.0
// Reports about a sharded module: the module tree with groups, placements and
// bytes; the gathers, reductions and waits in a step; and a trace of the step
// in Chrome's JSON format, which chrome://tracing and Perfetto display. For the
// thread that trains, between steps; covers only this rank, without
// communication.
#ifndef FSDP_REPORT_H_
#define FSDP_REPORT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "fsdp/engine/comm/step_recorder.h"
#include "torch/nn/module.h"

namespace fsdp {

// Prints one line for each module: name and type; under fully_shard also the
// mesh, whether it reshards after forward, and bytes, sharded and whole. Each
// parameter has one line with placement, shape, local shape and dtype.
// `kept` adds lines for what this rank keeps apart from the module:
//   fsdp::print(*model, std::cout,
//               {{"optimizer", fsdp::optim::StateBytes(optimizer)},
//                {"average", average.num_bytes()}});
struct KeptMemory {
  std::string name;
  uint64_t num_bytes;
};
void print(const torch::nn::Module& module, std::ostream& os,
           const std::vector<KeptMemory>& kept = {});
std::string to_string(const torch::nn::Module& module);

// Sums since reset_step_report, over all groups below the root of `module`.
// Throws c10::ValueError for a module without fully_shard.
StepReport step_report(const torch::nn::Module& module);
void reset_step_report(const torch::nn::Module& module);
// The report as one line of text.
std::string to_string(const StepReport& report);

// Starts or stops timing each gather, reduction and wait. Starting discards the
// earlier record.
void set_tracing(const torch::nn::Module& module, bool tracing);
// Writes the record as JSON. Rows are kinds of communication; communication at
// the same time as a "wait" was not hidden behind computation. Throws
// c10::Error when the file cannot be written.
void write_trace(const torch::nn::Module& module, const std::string& path);

}  // namespace fsdp

#endif  // FSDP_REPORT_H_
