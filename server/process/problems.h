// SPDX-License-Identifier: Apache-2.0
// Problems: all mistakes in a configuration, collected so that an operator is
// told about all of them at once. Thread-compatible.
#ifndef SERVER_PROCESS_PROBLEMS_H_
#define SERVER_PROCESS_PROBLEMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"

namespace dcp::server {

class Problems {
 public:
  // Does nothing if `status` is OK.
  void Add(const absl::Status& status) {
    if (status.ok()) return;
    if (first_.ok()) first_ = status;
    messages_.emplace_back(status.message());
  }

  // OK without problems. Otherwise the code is that of the first, and the
  // message has a line or more for each.
  absl::Status status() const {
    return messages_.size() < 2
               ? first_
               : absl::Status(first_.code(), absl::StrJoin(messages_, "\n"));
  }

 private:
  absl::Status first_;
  std::vector<std::string> messages_;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_PROBLEMS_H_
