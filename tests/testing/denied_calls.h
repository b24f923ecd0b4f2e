// SPDX-License-Identifier: Apache-2.0
// Denies system calls to one thread, as a sandbox or a limit does: the kernel
// itself answers them with an error.
#ifndef TESTS_TESTING_DENIED_CALLS_H_
#define TESTS_TESTING_DENIED_CALLS_H_

#include <functional>

namespace dcp::testing {

// From now on the calling thread, and a program that it executes, cannot start
// threads, as at the limit of ulimit -u.
void DenyNewThreads();

// Calls `body` on another thread, which cannot start threads; waits for it.
void WithoutNewThreads(const std::function<void()>& body);

// The same for a thread that gets no random bytes from the kernel.
void WithoutRandomBytes(const std::function<void()>& body);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_DENIED_CALLS_H_
