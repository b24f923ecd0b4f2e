// SPDX-License-Identifier: Apache-2.0
// Runs one step of tools/gpu_check, on a GPU or, to try it without one, on the
// CPU. Prints one line of JSON: {"ok", "problems", "figures", "libtorch"}.
//
//   gpu_steps STEP cpu|cuda FOLDER      files are written to FOLDER
//
// The exit code is 0 whenever the line was printed; a step that throws ends
// the process.

#include <dlfcn.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ATen/Version.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/process_group.h"
#include "nlohmann/json.hpp"
#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/gpu/save_step.h"
#include "tests/fsdp/gpu/step_result.h"
#include "tests/fsdp/gpu/trace_step.h"
#include "tests/fsdp/gpu/training_steps.h"

namespace fsdp::testing {
namespace {

using Step = std::function<StepResult(const CheckDevice&, const std::string&)>;

std::map<std::string, Step> Steps() {
  const auto without_folder = [](StepResult (*step)(const CheckDevice&)) {
    return [step](const CheckDevice& device, const std::string&) {
      return step(device);
    };
  };
  return {{"equal", without_folder(CheckEqualToCpu)},
          {"memory", without_folder(CheckMemory)},
          {"precision", without_folder(CheckPrecision)},
          {"ranks", without_folder(CheckRanks)},
          {"parallel", without_folder(CheckParallel)},
          {"save", CheckSave},
          {"trace", CheckTrace}};
}

// The file from which LibTorch was loaded.
std::string LibTorchPath() {
  Dl_info info = {};
  void* const function = reinterpret_cast<void*>(&at::show_config);
  return dladdr(function, &info) != 0 ? info.dli_fname : "";
}

int Main(const std::vector<std::string>& arguments) {
  TORCH_CHECK(arguments.size() == 3, "usage: gpu_steps STEP cpu|cuda FOLDER");
  const std::map<std::string, Step> steps = Steps();
  const auto step = steps.find(arguments[0]);
  TORCH_CHECK(
      step != steps.end(), "no step is called '", arguments[0], "'; there are ",
      absl::StrJoin(steps, ", ", [](std::string* text, const auto& entry) {
        text->append(entry.first);
      }));
  const CheckDevice device(arguments[1]);
  const StepResult result = step->second(device, arguments[2]);
  std::cout << nlohmann::json{{"ok", result.problems.empty()},
                              {"problems", result.problems},
                              {"figures", result.figures},
                              {"libtorch", LibTorchPath()}}
            << std::endl;
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp::testing

int main(int argc, char** argv) {
  return fsdp::testing::Main(std::vector<std::string>(argv + 1, argv + argc));
}
