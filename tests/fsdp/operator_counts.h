// SPDX-License-Identifier: Apache-2.0
// OperatorCounts: counts the operators that run on this thread while it lives,
// for tests of a call's cost on a device. One at a time on a thread.
//
//   const OperatorCounts counts;
//   ... train a step ...
//   EXPECT_EQ(counts.calls("aten::_local_scalar_dense"), 1);  // values read
#ifndef TESTS_FSDP_OPERATOR_COUNTS_H_
#define TESTS_FSDP_OPERATOR_COUNTS_H_

#include <map>
#include <memory>
#include <string>

#include "ATen/record_function.h"

namespace fsdp::testing {

class OperatorCounts {
 public:
  OperatorCounts() {
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(Note).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCounts() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  OperatorCounts(const OperatorCounts&) = delete;
  OperatorCounts& operator=(const OperatorCounts&) = delete;

  int calls(const std::string& name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
  }

 private:
  static std::unique_ptr<at::ObserverContext> Note(
      const at::RecordFunction& call) {
    ++current_->calls_[call.name()];
    return nullptr;
  }

  static inline thread_local OperatorCounts* current_ = nullptr;
  at::CallbackHandle handle_;
  std::map<std::string, int> calls_;
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_OPERATOR_COUNTS_H_
