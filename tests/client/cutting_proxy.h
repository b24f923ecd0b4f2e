// SPDX-License-Identifier: Apache-2.0
// CuttingProxy: forwards loopback connections to a server and cuts each of the
// first few after a given number of answer bytes. For tests of clients that
// resume. It runs one thread; a failing system call is a DCP_CHECK.

#ifndef TESTS_CLIENT_CUTTING_PROXY_H_
#define TESTS_CLIENT_CUTTING_PROXY_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace dcp::client {

class CuttingProxy {
 public:
  // `target` is "127.0.0.1:PORT".
  CuttingProxy(absl::string_view target, int num_cuts,
               uint64_t cut_after_bytes);
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  const std::string& address() const { return address_; }
  int num_cuts_left() const { return num_cuts_left_; }

 private:
  void Run();

  const int target_port_;
  const uint64_t cut_after_bytes_;
  std::atomic<int> num_cuts_left_;
  int listener_;
  int wake_[2];  // a pipe: closed to end the thread
  std::string address_;
  std::thread thread_;
};

}  // namespace dcp::client

#endif  // TESTS_CLIENT_CUTTING_PROXY_H_
