// SPDX-License-Identifier: Apache-2.0
// The names and shapes of DeepSeek V3 as transformers stores it in bfloat16,
// without the layers that predict further tokens: 45,395 tensors. Any thread.
#ifndef TESTS_TESTING_DEEPSEEK_SHAPES_H_
#define TESTS_TESTING_DEEPSEEK_SHAPES_H_

#include <string>
#include <vector>

#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp::testing {

std::vector<MappingTensor> DeepSeekV3Tensors();

// The part of config.json that the rules need.
std::string DeepSeekV3Config();

}  // namespace dcp::testing

#endif  // TESTS_TESTING_DEEPSEEK_SHAPES_H_
