// SPDX-License-Identifier: Apache-2.0
// Denies system calls with a seccomp filter.
// Tested by tests/dcp/base/thread_test.cc and
// tests/dcp/base/unique_bits_test.cc.
#include "tests/testing/denied_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

// For the calling thread, and for good.
void Deny(const std::vector<uint32_t>& calls, uint32_t error) {
  std::vector<sock_filter> rules = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const uint32_t call : calls) {
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {.len = static_cast<uint16_t>(rules.size()),
                              .filter = rules.data()};
  DCP_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, std::strerror(errno));
  DCP_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
            std::strerror(errno));
}

}  // namespace

void DenyNewThreads() { Deny({SYS_clone, SYS_clone3}, EAGAIN); }

void WithoutNewThreads(const std::function<void()>& body) {
  std::thread([&] {
    DenyNewThreads();
    body();
  }).join();
}

void WithoutRandomBytes(const std::function<void()>& body) {
  std::thread([&] {
    Deny({SYS_getrandom}, EPERM);
    body();
  }).join();
}

}  // namespace dcp::testing
