// SPDX-License-Identifier: Apache-2.0
// StepResult: the result of a gpu_steps step: figures and problems. A plain
// value.
#ifndef TESTS_FSDP_GPU_STEP_RESULT_H_
#define TESTS_FSDP_GPU_STEP_RESULT_H_

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace fsdp::testing {

struct StepResult {
  // By name; the name says the unit. Numbers, texts and lists of numbers.
  nlohmann::json figures = nlohmann::json::object();
  // Sentences. The step is passed if there are none.
  std::vector<std::string> problems = {};

  // Adds the problem unless `holds`.
  void Expect(bool holds, std::string problem) {
    if (!holds) problems.push_back(std::move(problem));
  }
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_STEP_RESULT_H_
