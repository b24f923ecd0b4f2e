// SPDX-License-Identifier: Apache-2.0

#include "fsdp/report.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {
namespace {

StepRecorder& GetRecorder(const torch::nn::Module& module) {
  return get_fsdp_module(module).state()->scheduler().comm().recorder();
}

std::string Bytes(uint64_t num_bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(num_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", num_bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Shape(const std::vector<int64_t>& sizes) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

std::string AfterForward(const FsdpParamGroup& group) {
  if (!group.ReshardsAfterForward()) return "keeps after forward";
  const ProcessGroup& smaller = group.config().post_forward_group;
  if (!smaller) return "reshards after forward";
  return absl::StrCat("reshards to ", smaller->getSize(), " after forward");
}

std::string GroupLine(const FsdpState& state, const FsdpParamGroup& group) {
  uint64_t sharded = 0;
  uint64_t whole = 0;
  for (const auto& param : group.params()) {
    sharded += param->padded_shard().nbytes();
    whole += param->unsharded_bytes();
  }
  const DataParallelMesh& mesh = group.config().mesh;
  std::string line = absl::StrCat(
      mesh.shard_axis.has_value() ? "FSDP over " : "replicated over ",
      to_string(mesh.mesh), ", ", AfterForward(group), ", ", Bytes(sharded),
      " of ", Bytes(whole));
  if (state.modules().size() > 1) {
    absl::StrAppend(&line, ", one group of ", state.modules().size(),
                    " modules (", state.name(), ")");
  }
  if (group.config().offload_policy.has_value()) {
    absl::StrAppend(&line, ", offloaded to the CPU");
  }
  return line;
}

std::string ParameterLine(const std::string& name, const at::Tensor& tensor) {
  const std::string dtype(c10::toString(tensor.scalar_type()));
  const std::optional<DTensor> sharded = dtensor_of(tensor);
  std::string line =
      sharded.has_value()
          ? absl::StrCat(name, ": ", Shape(sharded->shape()), " ", dtype, ", ",
                         to_string(sharded->placements()), ", local ",
                         Shape(tensor.sizes().vec()))
          : absl::StrCat(name, ": ", Shape(tensor.sizes().vec()), " ", dtype,
                         ", not sharded");
  if (!tensor.requires_grad()) absl::StrAppend(&line, ", frozen");
  return line;
}

void PrintTree(const torch::nn::Module& module, const std::string& name,
               const std::string& indent, std::ostream& os) {
  os << indent << (name.empty() ? "" : name + ": ") << type_name(module);
  const std::shared_ptr<FsdpState> state = FsdpState::Find(module);
  if (state && state->groups().empty()) os << "  [FSDP, no parameters]";
  if (state) {
    for (const auto& group : state->groups()) {
      os << "  [" << GroupLine(*state, *group) << "]";
    }
  }
  os << "\n";
  const std::string below = indent + "  ";
  for (const auto& item : ParameterRegistry(module)) {
    if (item.value().defined()) {
      os << below << ParameterLine(item.key(), item.value()) << "\n";
    }
  }
  for (const auto& item : ChildRegistry(module)) {
    PrintTree(*item.value(), item.key(), below, os);
  }
}

}  // namespace

void print(const torch::nn::Module& module, std::ostream& os,
           const std::vector<KeptMemory>& kept) {
  PrintTree(module, "", "", os);
  for (const KeptMemory& memory : kept) {
    os << memory.name << ": " << Bytes(memory.num_bytes) << " on this rank\n";
  }
}

std::string to_string(const torch::nn::Module& module) {
  std::ostringstream text;
  print(module, text);
  return text.str();
}

StepReport step_report(const torch::nn::Module& module) {
  return GetRecorder(module).report();
}

void reset_step_report(const torch::nn::Module& module) {
  GetRecorder(module).Reset();
}

std::string to_string(const StepReport& report) {
  return absl::StrFormat(
      "%d all-gathers (%s, %d prefetched, waited %.1f ms), %d reduce-scatters "
      "(%s, waited %.1f ms), %d all-reduces (%s); unsharded now %s, at most %s",
      report.num_all_gathers, Bytes(report.gathered_bytes),
      report.num_prefetched, report.gather_wait_seconds * 1e3,
      report.num_reduce_scatters, Bytes(report.reduced_bytes),
      report.reduce_wait_seconds * 1e3, report.num_all_reduces,
      Bytes(report.all_reduced_bytes), Bytes(report.unsharded_bytes),
      Bytes(report.unsharded_bytes_peak));
}

void set_tracing(const torch::nn::Module& module, bool tracing) {
  StepRecorder& recorder = GetRecorder(module);
  if (tracing) recorder.Reset();
  recorder.set_tracing(tracing);
}

void write_trace(const torch::nn::Module& module, const std::string& path) {
  std::ofstream file(path);
  const int64_t rank = get_rank();
  std::vector<std::string> rows;
  const char* separator = "";
  file << "{\"traceEvents\":[";
  for (const StepRecorder::Span& span : GetRecorder(module).spans()) {
    auto row = std::find(rows.begin(), rows.end(), span.row);
    if (row == rows.end()) {
      rows.push_back(span.row);
      row = rows.end() - 1;
      file << separator
           << absl::StrFormat(
                  "\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,"
                  "\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                  rank, row - rows.begin(), span.row);
      separator = ",";
    }
    const std::string name =
        absl::StrReplaceAll(span.name.empty() ? "root" : span.name,
                            {{"\\", "\\\\"}, {"\"", "\\\""}});
    file << absl::StrFormat(
        ",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,"
        "\"tid\":%d,\"ts\":%d,\"dur\":%d}",
        name, span.row, rank, row - rows.begin(), span.begin_us,
        span.duration_us);
  }
  file << "\n]}\n";
  file.close();
  TORCH_CHECK(file.good(), "fsdp: cannot write the trace to ", path);
}

}  // namespace fsdp
