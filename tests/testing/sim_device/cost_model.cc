// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/cost_model.h"

#include <algorithm>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"

namespace sim {
namespace {

// turns a rate per second into one per microsecond
constexpr double kPerMicro = 1e6;

// Dense products: 989 TFLOP/s in 16 bits, where large ones reach 0.7; 67 in
// float32.
constexpr double kLowFlops = 0.7 * 989e12 / kPerMicro;
constexpr double kFloatFlops = 0.8 * 67e12 / kPerMicro;
// HBM3 has 3.35 TB/s; PCIe 5 has 63 GB/s.
constexpr double kMemoryBytes = 0.85 * 3.35e12 / kPerMicro;
constexpr double kPcieBytes = 0.85 * 63e9 / kPerMicro;
constexpr double kLaunchMicros = 2;

// NCCL's bus bandwidth over NVLink 4 (450 GB/s each way), and over one 400
// Gbit/s port for each device.
constexpr double kNvlinkBytes = 360e9 / kPerMicro;
constexpr double kNetworkBytes = 45e9 / kPerMicro;
constexpr double kNvlinkMicros = 15;
constexpr double kNetworkMicros = 35;

double NumBytes(const std::vector<Access>& accesses) {
  double bytes = 0;
  for (const Access& access : accesses) {
    bytes += static_cast<double>(access.extent.num_bytes());
  }
  return bytes;
}

// The flops in [.., m, k] x [.., k, n]: the last two tensors among the
// arguments to mm, addmm, bmm and baddbmm.
double ProductFlops(const std::string& op, const torch::jit::Stack& arguments) {
  size_t first = 0;
  if (op == "aten::addmm" || op == "aten::baddbmm") {
    first = 1;
  } else if (op != "aten::mm" && op != "aten::bmm") {
    return 0;
  }
  const at::Tensor& a = arguments[first].toTensor();
  const at::Tensor& b = arguments[first + 1].toTensor();
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

bool IsLow(const torch::jit::Stack& arguments) {
  return arguments[0].isTensor() &&
         c10::elementSize(arguments[0].toTensor().scalar_type()) <= 2;
}

}  // namespace

double KernelMicros(const std::string& op, const torch::jit::Stack& arguments,
                    const std::vector<Access>& accesses) {
  const double memory = NumBytes(accesses) / kMemoryBytes;
  const double flops = ProductFlops(op, arguments);
  const double products =
      flops == 0 ? 0 : flops / (IsLow(arguments) ? kLowFlops : kFloatFlops);
  return kLaunchMicros + std::max(memory, products);
}

double CopyMicros(const std::vector<Access>& accesses, bool is_local) {
  return kLaunchMicros + (is_local ? NumBytes(accesses) / kMemoryBytes
                                   : NumBytes(accesses) / 2 / kPcieBytes);
}

double CollectiveMicros(const std::string& operation, uint64_t bytes,
                        int num_ranks, bool is_one_machine) {
  if (num_ranks == 1) return kLaunchMicros;
  const double bandwidth = is_one_machine ? kNvlinkBytes : kNetworkBytes;
  const double latency = is_one_machine ? kNvlinkMicros : kNetworkMicros;
  const double ranks = num_ranks;
  double moved = static_cast<double>(bytes);
  if (operation == "all-reduce") {
    moved *= 2 * (ranks - 1) / ranks;
  } else if (operation != "send" && operation != "receive") {
    moved *= (ranks - 1) / ranks;
  }
  return latency + moved / bandwidth;
}

}  // namespace sim
