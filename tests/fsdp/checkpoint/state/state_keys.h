// SPDX-License-Identifier: Apache-2.0
// A dict's keys, in order. For tests; any thread.
#ifndef TESTS_FSDP_CHECKPOINT_STATE_STATE_KEYS_H_
#define TESTS_FSDP_CHECKPOINT_STATE_STATE_KEYS_H_

#include <string>
#include <vector>

#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp::testing {

inline std::vector<std::string> StateKeys(const StateDict& dict) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict) keys.push_back(key);
  return keys;
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_CHECKPOINT_STATE_STATE_KEYS_H_
