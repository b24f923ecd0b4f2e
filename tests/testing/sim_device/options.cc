// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/options.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "c10/util/Exception.h"

namespace sim {
namespace {

int64_t Number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  int64_t number = 0;
  TORCH_CHECK_VALUE(absl::SimpleAtoi(text, &number) && number >= 0, variable,
                    "=", text, " is not a number from 0");
  return number;
}

}  // namespace

Options& options() {
  static auto* const all = new Options{
      .enabled = Number("TESSERA_SIM_DEVICE", 0) != 0,
      .num_devices = Number("SIM_DEVICES", 8),
      .max_delay_us = Number("SIM_DELAY_US", 0),
      .collective_us = Number("SIM_COLLECTIVE_US", 0),
      .seed = static_cast<uint64_t>(Number("SIM_SEED", 1)),
      .poison = Number("SIM_POISON", 1) != 0 && Number("SIM_CLOCK", 0) == 0,
      .memory_mb = Number("SIM_MEMORY_MB", 0),
      .stacks = Number("SIM_STACKS", 0) != 0,
      .print = Number("SIM_PRINT", 0) != 0,
      .report = Number("SIM_REPORT", 0) != 0,
      .clock = Number("SIM_CLOCK", 0) != 0,
      .ranks_per_machine = Number("SIM_MACHINE", 8),
      .watchdog_s = Number("SIM_WATCHDOG_S", 60)};
  return *all;
}

}  // namespace sim
