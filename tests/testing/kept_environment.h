// SPDX-License-Identifier: Apache-2.0
// KeptEnvironment: the destructor restores the environment as it was when this
// was made, so that a test that sets variables does not change the next one.
// For a test with one thread.
#ifndef TESTS_TESTING_KEPT_ENVIRONMENT_H_
#define TESTS_TESTING_KEPT_ENVIRONMENT_H_

#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <string>

namespace dcp::testing {

class KeptEnvironment {
 public:
  KeptEnvironment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      if (equals == std::string::npos) continue;
      variables_[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }

  KeptEnvironment(const KeptEnvironment&) = delete;
  KeptEnvironment& operator=(const KeptEnvironment&) = delete;

  ~KeptEnvironment() {
    clearenv();
    for (const auto& [name, value] : variables_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_KEPT_ENVIRONMENT_H_
